"""Models in a `.gguf` file, llama.cpp's format: architectures llama and gpt2.

The configuration comes from the file's settings; tensors are renamed, the rows of queries and keys
put in Hugging Face's order, and matrices turned to [in, out]. Leaves out writing, experts, and
computing with packed weights.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npgpt.files.checkpoint import shortened
from npgpt.files.gguf_reader import Header, read_gguf_header, read_gguf_tensor
from npgpt.files.kinds import NonNegative, Size, check_kinds
from npgpt.files.tensors import Layout, Shapes, warn_of_broken
from npgpt.models.common import Params
from npgpt.models.gpt2.checkpoint import OUT_IN as GPT2_LAYOUT
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.gpt2.config import param_shapes as gpt2_shapes
from npgpt.models.llama.checkpoint import LAYOUT as LLAMA_LAYOUT
from npgpt.models.llama.config import LlamaConfig
from npgpt.models.llama.config import param_shapes as llama_shapes
from npgpt.ops.rope import default_frequencies, llama3_frequencies

ROPE_FREQS = "rope_freqs.weight"  # llama3's factors, one for each pair
# After the name of the architecture.
KINDS: dict[str, Any] = {
    "context_length": Size,
    "embedding_length": Size,
    "block_count": Size,
    "feed_forward_length": Size,
    "expert_count": int,
    "attention.head_count": Size,
    "attention.head_count_kv": Size,
    "attention.key_length": Size,
    "attention.layer_norm_epsilon": NonNegative,
    "attention.layer_norm_rms_epsilon": NonNegative,
    "rope.dimension_count": Size,
    "rope.freq_base": NonNegative,
    "rope.scale_linear": NonNegative,
    "rope.scaling.factor": NonNegative,
    "rope.scaling.type": str,
}
# Tensors have shapes of their own; the last two are for rotary scalings that are refused.
NO_EFFECT = (
    "vocab_size",
    "attention.value_length",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
)
# llama.cpp's name of a part -> npgpt's
LLAMA_NAMES = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GPT2_NAMES = {
    "token_embd": "wte",
    "position_embd": "wpe",
    "output_norm": "ln_f",
    "output": "lm_head",
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}


def load_gguf(path: Path, dtype: np.dtype) -> tuple[LlamaConfig | GPT2Config, Params]:
    """The configuration of the Llama or GPT-2 in a `.gguf` file, and its parameters in `dtype`.

    Raises FileNotFoundError; ValueError for another architecture, settings or tensors missing or
    that do not fit; ImportError where packed weights need the package `gguf`. Warns of values that
    are not finite.
    """
    header = read_gguf_header(path)
    config = gguf_config(header)
    if isinstance(config, GPT2Config):
        return config, _params(header, gpt2_shapes(config), GPT2_LAYOUT, GPT2_NAMES, dtype)
    params = _params(header, llama_shapes(config), LLAMA_LAYOUT, LLAMA_NAMES, dtype)
    for name in params:
        if name.endswith("q_proj.weight"):
            params[name] = unpermute(params[name], config.num_attention_heads)
        elif name.endswith("k_proj.weight"):
            params[name] = unpermute(params[name], config.n_kv_head)
    return config, params


def gguf_config(header: Header) -> GPT2Config | LlamaConfig:
    """The configuration that a file's settings describe; ValueError for another architecture."""
    model_type = header.settings.get("general.architecture")
    if model_type == "llama":
        return _llama_config(header)
    if model_type == "gpt2":
        return _gpt2_config(header)
    raise ValueError(
        f"{header.path}: the architecture is {model_type!r:.60}; npgpt loads llama and gpt2."
    )


def unpermute(weight: np.ndarray, n_head: int) -> np.ndarray:
    """Columns of W_q or W_k [d, H d_h] in Hugging Face's order again.

    llama.cpp rotates neighbouring columns as a pair, (0, 1), (2, 3), …; Hugging Face column i of a
    head with column i + d_h/2.
    """
    d, columns = weight.shape
    paired = weight.reshape(d, n_head, columns // n_head // 2, 2)
    return paired.swapaxes(2, 3).reshape(d, columns)


def _params(
    header: Header, shapes: Shapes, layout: Layout, names: Mapping[str, str], dtype: np.dtype
) -> Params:
    """Every parameter under npgpt's name, the blocks' matrices [in, out]."""
    (blocks,) = layout.blocks
    stored = {_our_name(name, blocks, names): name for name in header.tensors}
    if twice := [name for name in header.tensors if name not in stored.values()]:
        raise ValueError(f"{header.path}: {shortened(twice)} is there under npgpt's name too.")
    stored.pop(ROPE_FREQS, None)
    if missing := [name for name in shapes if name not in stored]:
        raise ValueError(f"{header.path}: lacks what is {shortened(missing)} in npgpt.")
    if extra := [name for name in stored if name not in shapes]:
        raise ValueError(f"{header.path}: npgpt has no use for {shortened(extra)}.")
    params = {}
    for name, shape in shapes.items():
        is_matrix, found = layout.is_matrix(name), header.tensors[stored[name]].shape
        wanted = shape[::-1] if is_matrix else shape
        if found != wanted:
            raise ValueError(
                f"{header.path}: {stored[name]!r} has shape {list(found)}, but by the settings "
                f"it must have {list(wanted)}."
            )
        param = read_gguf_tensor(header, stored[name])
        params[name] = np.array(param.T if is_matrix else param, dtype, order="C")
    warn_of_broken({stored[name]: param for name, param in params.items()}, header.path)
    return params


def _our_name(name: str, blocks: str, names: Mapping[str, str]) -> str:
    """llama.cpp's name of a tensor -> npgpt's, or the same name where it is unknown."""
    found = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
    if found is None or found[2] not in names:
        return name
    prefix = "" if found[1] is None else f"{blocks}.{found[1]}."
    return f"{prefix}{names[found[2]]}.{found[3]}"


def _settings(header: Header, architecture: str) -> dict[str, Any]:
    """The settings of an architecture under their short names, checked; warns of unknown ones."""
    prefix = f"{architecture}."
    check_kinds(header.settings, {prefix + key: KINDS[key] for key in KINDS}, str(header.path))
    settings = {
        key.removeprefix(prefix): value
        for key, value in header.settings.items()
        if key.startswith(prefix)
    }
    if settings.get("block_count", 0) > len(header.tensors):
        raise ValueError(
            f"{header.path}: {prefix}block_count is {settings['block_count']}, but the file has "
            f"only {len(header.tensors)} tensors."
        )
    known = {*KINDS, *NO_EFFECT}
    if unknown := [prefix + key for key, value in settings.items() if value and key not in known]:
        warnings.warn(
            f"{header.path}: npgpt does not know {shortened(unknown)}, which may change results.",
            UserWarning,
            stacklevel=5,  # the line that called `load_gguf`
        )
    return settings


def _scaling(header: Header, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The rotary scaling; as llama.cpp reads it, a factor without a type is linear, and 0 is 1."""
    scaling = settings.get("rope.scaling.type", "linear")
    factor = settings.get("rope.scaling.factor", settings.get("rope.scale_linear", 0)) or 1
    if scaling == "none" or (scaling == "linear" and factor == 1):
        return None
    if ROPE_FREQS in header.tensors:
        raise ValueError(f"{header.path}: has {ROPE_FREQS!r} and another rotary scaling.")
    if scaling == "longrope":
        raise ValueError(f"{header.path}: its factors for longrope are not read; load the folder.")
    original = settings.get("rope.scaling.original_context_length")
    found = {"type": scaling, "factor": factor}
    return found if original is None else {**found, "original_max_position_embeddings": original}


def _llama_config(header: Header) -> LlamaConfig:
    settings = _settings(header, "llama")
    if experts := settings.get("expert_count"):
        raise ValueError(f"{header.path}: has expert_count {experts}, not a Llama.")
    d_h = settings.get("attention.key_length", settings.get("rope.dimension_count"))
    if settings.get("rope.dimension_count", d_h) != d_h:
        raise ValueError(f"{header.path}: turns a part of a head only, which npgpt does not.")
    raw = {
        "hidden_size": settings.get("embedding_length"),
        "intermediate_size": settings.get("feed_forward_length"),
        "num_hidden_layers": settings.get("block_count"),
        "num_attention_heads": settings.get("attention.head_count"),
        "num_key_value_heads": settings.get("attention.head_count_kv"),
        "head_dim": d_h,
        "max_position_embeddings": settings.get("context_length"),
        "rms_norm_eps": settings.get("attention.layer_norm_rms_epsilon"),
        "rope_theta": settings.get("rope.freq_base", 10000.0),
        "rope_scaling": _scaling(header, settings),
        **_common(header),
    }
    config = LlamaConfig.from_dict(raw, str(header.path))
    if ROPE_FREQS not in header.tensors:
        return config
    return LlamaConfig.from_dict({**raw, "rope_scaling": _llama3(header, config)}, str(header.path))


def _gpt2_config(header: Header) -> GPT2Config:
    settings = _settings(header, "gpt2")
    raw = {
        "n_positions": settings.get("context_length"),
        "n_embd": settings.get("embedding_length"),
        "n_layer": settings.get("block_count"),
        "n_head": settings.get("attention.head_count"),
        "n_inner": settings.get("feed_forward_length"),
        "layer_norm_epsilon": settings.get("attention.layer_norm_epsilon"),
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
        "eos_token_id": _end_ids(header),
    }


def _end_ids(header: Header) -> int | list[int] | None:
    """The ids of the end of a text, of a turn and of a message: a text ends at any of them."""
    named = [header.settings.get(f"tokenizer.ggml.{end}_token_id") for end in ("eos", "eot", "eom")]
    ids = [*dict.fromkeys(number for number in named if number is not None)]
    return ids if len(ids) > 1 else ids[0] if ids else None


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
