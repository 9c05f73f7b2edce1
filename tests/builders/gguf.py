"""Writes small GGUF files, byte by byte, as llama.cpp's converter would."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npgpt.models.llama.config import expert_names

LLAMA_PARTS = {  # of a block: llama.cpp's name -> Hugging Face's
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
WIDTH = {"llama": "rope.dimension_count"}  # the width of a head
PACKINGS = {"float32": 0, "float16": 1}


def text(value: str) -> bytes:
    data = value.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def setting(value: Any) -> tuple[int, bytes]:
    """Kind and bytes of a value, which may be such a pair already."""
    if isinstance(value, tuple):
        return value[0], value[1]
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, text(value)
    kinds = {setting(item)[0] for item in value}
    items = b"".join(setting(item)[1] for item in value)
    return 9, struct.pack("<IQ", *(kinds or {8}), len(value)) + items


def write_gguf(
    path: Path,
    settings: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    version: int = 3,
    alignment: int = 32,
) -> Path:
    """A file with these settings and unpacked tensors, each on a multiple of `alignment` bytes."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(settings))
    for name, value in settings.items():
        kind, data = setting(value)
        head += text(name) + struct.pack("<I", kind) + data
    body = b""
    for name, array in tensors.items():
        axes = array.shape[::-1]
        head += text(name) + struct.pack(f"<I{len(axes)}Q", len(axes), *axes)
        head += struct.pack("<IQ", PACKINGS[array.dtype.name], len(body))
        body += np.ascontiguousarray(array).tobytes()
        body += bytes(-len(body) % alignment)
    path.write_bytes(head + bytes(-len(head) % alignment) + body)
    return path


def llama_file(model: Any, **changes: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Settings and tensors of a Llama or a relative."""
    config, p = model.config, model.params
    kind = {"mixtral": "llama", "qwen3_moe": "qwen3moe"}.get(config.model_type, config.model_type)

    def paired(array: np.ndarray, n_head: int) -> np.ndarray:
        """llama.cpp turns neighbours, so row i and row i + d_h/2 of a head become neighbours."""
        if kind != "llama":
            return array
        halves = array.reshape(n_head, 2, config.d_h // 2, -1)
        return halves.swapaxes(1, 2).reshape(array.shape)

    settings = {
        "general.architecture": kind,
        f"{kind}.context_length": config.max_position_embeddings,
        f"{kind}.embedding_length": config.hidden_size,
        f"{kind}.block_count": config.num_hidden_layers,
        f"{kind}.feed_forward_length": config.intermediate_size,
        f"{kind}.attention.head_count": config.num_attention_heads,
        f"{kind}.attention.head_count_kv": config.n_kv_head,
        f"{kind}.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        f"{kind}.rope.freq_base": config.rope_theta,
        f"{kind}.{WIDTH.get(kind, 'attention.key_length')}": config.d_h,
    }
    if E := config.num_local_experts:
        settings |= {
            f"{kind}.expert_count": E,
            f"{kind}.expert_used_count": config.num_experts_per_tok,
        }
        if config.moe_intermediate_size is not None:
            settings[f"{kind}.expert_feed_forward_length"] = config.moe_intermediate_size
    tensors = {
        "token_embd.weight": p["embed_tokens.weight"],
        "output_norm.weight": p["norm.weight"],
    }
    if not config.tie_word_embeddings:
        tensors["output.weight"] = p["lm_head.weight"]
    for n in range(config.num_hidden_layers):
        for cpp, hf in LLAMA_PARTS.items():
            for end in ("weight", "bias"):
                if (array := p.get(f"layers.{n}.{hf}.{end}")) is None:
                    continue
                if cpp in ("attn_q", "attn_k"):
                    heads = config.num_attention_heads if cpp == "attn_q" else config.n_kv_head
                    array = paired(array.T, heads).T
                tensors[f"blk.{n}.{cpp}.{end}"] = array.T
        if config.sparse[n]:
            router, experts = expert_names(config, n)
            tensors[f"blk.{n}.ffn_gate_inp.weight"] = p[router].T
            for part, names in zip(("gate", "up", "down"), experts, strict=True):
                tensors[f"blk.{n}.ffn_{part}_exps.weight"] = np.stack([p[name].T for name in names])
    return {**settings, **changes}, tensors


def gpt2_file(model: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Settings and tensors of a GPT-2."""
    config = model.config
    settings = {
        "general.architecture": "gpt2",
        "gpt2.context_length": config.n_positions,
        "gpt2.embedding_length": config.n_embd,
        "gpt2.block_count": config.n_layer,
        "gpt2.feed_forward_length": config.ffn_width,
        "gpt2.attention.head_count": config.n_head,
        "gpt2.attention.layer_norm_epsilon": config.layer_norm_epsilon,
    }
    parts = {
        "ln_1": "attn_norm",
        "attn.c_attn": "attn_qkv",
        "attn.c_proj": "attn_output",
        "ln_2": "ffn_norm",
        "mlp.c_fc": "ffn_up",
        "mlp.c_proj": "ffn_down",
        "wte": "token_embd",
        "wpe": "position_embd",
        "ln_f": "output_norm",
        "lm_head": "output",
    }
    tensors = {}
    for name, array in model.params.items():
        block, _, rest = (
            name.removeprefix("h.").partition(".") if name[:2] == "h." else ("", "", name)
        )
        part, _, kind = rest.rpartition(".")
        place = f"blk.{block}.{parts[part]}.{kind}" if block else f"{parts[part]}.{kind}"
        tensors[place] = array.T if block and array.ndim == 2 else array
    return settings, tensors
