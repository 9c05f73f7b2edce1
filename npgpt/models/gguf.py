"""Models in a `.gguf` file, llama.cpp's format: architectures llama and gpt2.

The configuration comes from the file's settings (`gguf_config.py`); tensors are renamed, the rows
of queries and keys put in Hugging Face's order, and matrices turned to [in, out]. Leaves out
writing, experts, and computing with packed weights.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from npgpt.files.checkpoint import shortened
from npgpt.files.gguf_reader import Header, read_gguf_header, read_gguf_tensor
from npgpt.models.common import Params
from npgpt.models.gguf_config import ROPE_FREQS, gguf_config
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.gpt2.config import param_shapes as gpt2_shapes
from npgpt.models.llama.config import LlamaConfig
from npgpt.models.llama.config import param_shapes as llama_shapes

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
    that do not fit; ImportError where packed weights need the package `gguf`.
    """
    header = read_gguf_header(path)
    config = gguf_config(header)
    if isinstance(config, LlamaConfig):
        return config, _params(header, llama_shapes(config), "layers", LLAMA_NAMES, dtype)
    return config, _params(header, gpt2_shapes(config), "h", GPT2_NAMES, dtype)


def _params(
    header: Header,
    shapes: dict[str, tuple[int, ...]],
    blocks: str,
    names: dict[str, str],
    dtype: np.dtype,
) -> dict[str, np.ndarray]:
    """Every parameter under npgpt's name, the blocks' matrices [in, out]."""
    stored = {_renamed(name, blocks, names): name for name in header.tensors if name != ROPE_FREQS}
    if missing := [name for name in shapes if name not in stored]:
        raise ValueError(f"{header.path}: lacks what is {shortened(missing)} in npgpt.")
    if extra := [name for name in stored if name not in shapes]:
        raise ValueError(f"{header.path}: npgpt has no use for {shortened(extra)}.")
    heads = {
        "q_proj.weight": header.settings.get("llama.attention.head_count", 1),
        "k_proj.weight": header.settings.get(
            "llama.attention.head_count_kv", header.settings.get("llama.attention.head_count", 1)
        ),
    }
    params = {}
    for name, shape in shapes.items():
        matrix = name.startswith(blocks + ".") and len(shape) == 2
        tensor = header.tensors[stored[name]]
        if tensor.shape != (shape[::-1] if matrix else shape):
            raise ValueError(
                f"{header.path}: {stored[name]!r} has shape {list(tensor.shape)}, but by the "
                f"settings it must have {list(shape[::-1] if matrix else shape)}."
            )
        param = read_gguf_tensor(header, stored[name])
        part = name.rsplit(".", 2)[-2] + ".weight"
        if part in heads:
            param = _halves_apart(param, heads[part])
        params[name] = np.array(param.T if matrix else param, dtype, order="C")
    return params


def _renamed(name: str, blocks: str, names: dict[str, str]) -> str:
    """llama.cpp's name of a tensor -> npgpt's, or the same name where it is unknown."""
    found = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
    if found is None or found[2] not in names:
        return name
    prefix = "" if found[1] is None else f"{blocks}.{found[1]}."
    return f"{prefix}{names[found[2]]}.{found[3]}"


def _halves_apart(weight: np.ndarray, n_head: int) -> np.ndarray:
    """Rows of W_q or W_k [H d_h, d] in Hugging Face's order again.

    llama.cpp turns neighbouring rows as a pair, (0, 1), (2, 3), …; Hugging Face row i of a head
    with row i + d_h/2.
    """
    rows, d = weight.shape
    paired = weight.reshape(n_head, rows // n_head // 2, 2, d)
    return paired.swapaxes(1, 2).reshape(rows, d)
