"""The configuration of a llama or gpt2 from the settings in a GGUF file."""

from __future__ import annotations

from typing import Any

import numpy as np

from npgpt.files.gguf_reader import Header, read_gguf_tensor
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.llama.config import LlamaConfig
from npgpt.ops.rope import default_frequencies, llama3_frequencies

ROPE_FREQS = "rope_freqs.weight"  # llama3's factors, one a pair


def gguf_config(header: Header) -> GPT2Config | LlamaConfig:
    """The configuration of either; ValueError for another architecture."""
    architecture = header.settings.get("general.architecture")
    if architecture == "llama":
        return llama_config(header)
    if architecture == "gpt2":
        return gpt2_config(header)
    raise ValueError(
        f"{header.path}: the architecture is {architecture!r}; npgpt loads llama and gpt2."
    )


def llama_config(header: Header) -> LlamaConfig:
    """The configuration that a file's settings describe."""
    said = {key.removeprefix("llama."): value for key, value in header.settings.items()}
    if said.get("expert_count"):
        raise ValueError(f"{header.path}: has expert_count {said['expert_count']}, not a Llama.")
    d_h = said.get("attention.key_length", said.get("rope.dimension_count"))
    if said.get("rope.dimension_count", d_h) != d_h:
        raise ValueError(f"{header.path}: turns a part of a head only, which npgpt does not.")
    raw = {
        "hidden_size": said.get("embedding_length"),
        "intermediate_size": said.get("feed_forward_length"),
        "num_hidden_layers": said.get("block_count"),
        "num_attention_heads": said.get("attention.head_count"),
        "num_key_value_heads": said.get("attention.head_count_kv"),
        "head_dim": d_h,
        "max_position_embeddings": said.get("context_length"),
        "rms_norm_eps": said.get("attention.layer_norm_rms_epsilon"),
        "rope_theta": said.get("rope.freq_base", 10000.0),
        "rope_scaling": _scaling(said),
        **_common(header),
    }
    config = LlamaConfig.from_dict(raw, str(header.path))
    if ROPE_FREQS not in header.tensors:
        return config
    return LlamaConfig.from_dict({**raw, "rope_scaling": _llama3(header, config)}, str(header.path))


def gpt2_config(header: Header) -> GPT2Config:
    """The configuration that a file's settings describe."""
    said = {key.removeprefix("gpt2."): value for key, value in header.settings.items()}
    raw = {
        "n_positions": said.get("context_length"),
        "n_embd": said.get("embedding_length"),
        "n_layer": said.get("block_count"),
        "n_head": said.get("attention.head_count"),
        "n_inner": said.get("feed_forward_length"),
        "layer_norm_epsilon": said.get("attention.layer_norm_epsilon"),
        **_common(header),
    }
    return GPT2Config.from_dict(raw, str(header.path))


def _common(header: Header) -> dict[str, Any]:
    """What both architectures read alike; the vocabulary is as large as the token table."""
    table = header.tensors.get("token_embd.weight")
    return {
        "vocab_size": None if table is None else table.shape[0],
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "bos_token_id": header.settings.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": header.settings.get("tokenizer.ggml.eos_token_id"),
    }


def _scaling(said: dict[str, Any]) -> dict[str, Any] | None:
    kind = said.get("rope.scaling.type", "none")
    return None if kind == "none" else {"type": kind, "factor": said.get("rope.scaling.factor")}


def _llama3(header: Header, config: LlamaConfig) -> dict[str, Any]:
    """The rotary scaling of Llama 3.1, of which the file keeps only the factor of each pair.

    All published models blend between 1 and 4 turns in 8192 tokens; checked against the factors.
    """
    stored = read_gguf_tensor(header, ROPE_FREQS)
    settings = {
        "factor": float(stored.max()),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    plain = default_frequencies(config.d_h, config.rope_theta)
    made = plain / llama3_frequencies(config.d_h, config.rope_theta, **settings)
    if stored.shape != made.shape or not np.allclose(stored, made, rtol=1e-3):
        raise ValueError(f"{header.path}: {ROPE_FREQS!r} is not the scaling of Llama 3.1.")
    return {"rope_type": "llama3", **settings}
