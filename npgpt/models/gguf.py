"""Models in a `.gguf` file, llama.cpp's format: llama, qwen2, qwen3, qwen3moe and gpt2.

The configuration comes from the file's settings; tensors are renamed, the rows of a Llama's queries
and keys put in Hugging Face's order, experts taken apart, and matrices turned to [in, out]. A
Mistral is a llama to llama.cpp, a Mixtral one with experts. Leaves out writing, and computing with
packed weights.
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
from npgpt.models.llama.config import LlamaConfig, expert_names
from npgpt.models.llama.config import param_shapes as llama_shapes
from npgpt.models.llama.families import FAMILIES
from npgpt.ops.rope import default_frequencies, llama3_frequencies

ROPE_FREQS = "rope_freqs.weight"  # llama3's factors, one for each pair
# After the name of the architecture.
KINDS: dict[str, Any] = {
    "context_length": Size,
    "embedding_length": Size,
    "block_count": Size,
    "feed_forward_length": Size,
    "expert_count": int,
    "expert_used_count": Size,
    "expert_feed_forward_length": Size,
    "attention.head_count": Size,
    "attention.head_count_kv": Size,
    "attention.key_length": Size,
    "attention.layer_norm_epsilon": NonNegative,
    "attention.layer_norm_rms_epsilon": NonNegative,
    "rope.dimension_count": Size,
    "rope.freq_base": NonNegative,
    "rope.scale_linear": NonNegative,
    "rope.scaling.factor": NonNegative,
    "rope.scaling.original_context_length": Size,
    "rope.scaling.type": str,
}
NO_EFFECT = ("vocab_size", "attention.value_length", "rope.scaling.finetuned")
# llama.cpp's name of an architecture -> the model_type
LLAMAS = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3moe": "qwen3_moe"}
PAIRED = ("llama", "mixtral")  # where llama.cpp has put queries and keys in another order
# llama.cpp's name of a part -> npgpt's
LLAMA_NAMES = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
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
    """The configuration of the model in a `.gguf` file, and its parameters in `dtype`.

    Raises FileNotFoundError; ValueError for another architecture, settings or tensors missing or
    that do not fit; ImportError where packed weights need the package `gguf`. Warns of values that
    are not finite.
    """
    header = read_gguf_header(path)
    config = gguf_config(header)
    if isinstance(config, GPT2Config):
        return config, _params(header, gpt2_shapes(config), GPT2_LAYOUT, GPT2_NAMES, dtype)
    params = _llama_params(header, config, dtype)
    if config.model_type in PAIRED:
        for name in params:
            if re.search(r"[qk]_proj\.", name):
                n_head = config.num_attention_heads if "q_proj" in name else config.n_kv_head
                params[name] = unpermute(params[name], n_head)
    return config, params


def gguf_config(header: Header) -> GPT2Config | LlamaConfig:
    """The configuration that a file's settings describe; ValueError for another architecture."""
    model_type = header.settings.get("general.architecture")
    if model_type in [*LLAMAS]:  # a list takes any value
        return _llama_config(header, model_type)
    if model_type == "gpt2":
        return _gpt2_config(header)
    raise ValueError(
        f"{header.path}: the architecture is {model_type!r:.60}; npgpt loads {', '.join(LLAMAS)} "
        "and gpt2."
    )


def unpermute(weight: np.ndarray, n_head: int) -> np.ndarray:
    """Columns of W_q or W_k [d, H d_h], or of their biases [H d_h], in Hugging Face's order again.

    llama.cpp rotates neighbouring columns as a pair, (0, 1), (2, 3), …; Hugging Face column i of a
    head with column i + d_h/2.
    """
    paired = weight.reshape(-1, n_head, weight.shape[-1] // n_head // 2, 2)
    return paired.swapaxes(2, 3).reshape(weight.shape)


def _llama_params(header: Header, config: LlamaConfig, dtype: np.dtype) -> Params:
    """Every parameter of a Llama; a file has all experts of a block in one tensor [E, out, in]."""
    shapes, names = llama_shapes(config), LLAMA_NAMES
    stacks: dict[str, list[str]] = {}
    if config.family.experts is not None:
        part, matrices = config.family.experts
        tensors = [f"ffn_{each}_exps" for each in ("gate", "up", "down")]
        renamed = {name: f"{part}.experts.{W}" for name, W in zip(tensors, matrices, strict=True)}
        names = {**names, "ffn_gate_inp": f"{part}.gate", **renamed}
        for n in range(config.num_hidden_layers):
            _, experts = expert_names(config, n)
            stacks |= {
                f"layers.{n}.{part}.experts.{W}.weight": each
                for W, each in zip(matrices, experts, strict=True)
            }
    stored = {name: shape for name, shape in shapes.items() if ".experts." not in name}
    stored |= {stack: (len(each), *shapes[each[0]]) for stack, each in stacks.items()}
    params = _params(header, stored, LLAMA_LAYOUT, names, dtype)
    for stack, each in stacks.items():
        params |= zip(each, params.pop(stack), strict=True)
    return {name: params[name] for name in shapes}


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
        wanted = (*shape[:-2], *shape[:-3:-1]) if is_matrix else shape
        if found != wanted:
            raise ValueError(
                f"{header.path}: {stored[name]!r} has shape {list(found)}, but by the settings "
                f"it must have {list(wanted)}."
            )
        param = read_gguf_tensor(header, stored[name])
        params[name] = np.array(param.swapaxes(-1, -2) if is_matrix else param, dtype, order="C")
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


def _llama_config(header: Header, architecture: str) -> LlamaConfig:
    settings = _settings(header, architecture)
    has_experts = architecture == "llama" and settings.get("expert_count")
    model_type = "mixtral" if has_experts else LLAMAS[architecture]
    d_h = settings.get("attention.key_length", settings.get("rope.dimension_count"))
    if settings.get("rope.dimension_count", d_h) != d_h:
        raise ValueError(f"{header.path}: turns a part of a head only, which npgpt does not.")
    raw = {
        "model_type": model_type,
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
        **_experts(header, settings, model_type),
        **_biases(header, model_type),
        **_common(header),
    }
    config = LlamaConfig.from_dict(raw, str(header.path))
    if ROPE_FREQS not in header.tensors:
        return config
    return LlamaConfig.from_dict({**raw, "rope_scaling": _llama3(header, config)}, str(header.path))


def _experts(header: Header, settings: Mapping[str, Any], model_type: str) -> dict[str, Any]:
    """What a family that has experts reads of them; llama.cpp has their weights sum to 1.

    Raises ValueError for another number of experts than the router has rows.
    """
    count, family = settings.get("expert_count", 0), FAMILIES[model_type]
    router = header.tensors.get("blk.0.ffn_gate_inp.weight")
    rows = 0 if router is None else router.shape[0]
    if count != rows:
        raise ValueError(
            f"{header.path}: expert_count is {count}, but the router of a {model_type} has {rows} "
            "rows here."
        )
    experts = {
        "num_local_experts": count,
        "num_experts_per_tok": settings.get("expert_used_count"),
        "moe_intermediate_size": settings.get("expert_feed_forward_length"),
        "norm_topk_prob": True,
    }
    return {name: experts[name] for name in experts if name not in family.unread}


def _biases(header: Header, model_type: str) -> dict[str, bool]:
    """Which biases the tensors of the first block have, where an architecture may have them."""
    tensors = {"attention_bias": "attn_output", "mlp_bias": "ffn_up"}
    return {
        name: f"blk.0.{tensor}.bias" in header.tensors
        for name, tensor in tensors.items()
        if name not in FAMILIES[model_type].unread
    }


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
