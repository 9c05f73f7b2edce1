"""Llama's relatives: who they are for transformers, and what each has that Llama has not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

WINDOWS = ("sliding_window", "use_sliding_window", "max_window_layers", "layer_types")
BIASES = ("attention_bias", "mlp_bias")


class Family(NamedTuple):
    """What a `model_type` stands for.

    cls: transformers' class.
    defaults: what transformers takes where the file is silent and Llama would take something else.
    unread: settings of other relatives, which transformers does not read in this one.
    qkv_bias: whether queries, keys and values have biases, whatever `attention_bias` says.
    head_norms: whether each query and key is normed before it is turned.
    """

    cls: str
    defaults: Mapping[str, Any] = {}
    unread: tuple[str, ...] = ()
    qkv_bias: bool = False
    head_norms: bool = False


QWEN: dict[str, Any] = {
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "sliding_window": 4096,
    "bos_token_id": None,
    "eos_token_id": None,
}
FAMILIES: dict[str, Family] = {
    "llama": Family("LlamaForCausalLM", unread=WINDOWS),
    "mistral": Family(
        "MistralForCausalLM",
        {
            "intermediate_size": 14336,
            "num_key_value_heads": 8,
            "max_position_embeddings": 4096 * 32,
            "sliding_window": 4096,
        },
        unread=(*BIASES, *WINDOWS[1:]),
    ),
    "qwen2": Family("Qwen2ForCausalLM", QWEN, unread=BIASES, qkv_bias=True),
    "qwen3": Family(
        "Qwen3ForCausalLM", {**QWEN, "head_dim": 128}, unread=("mlp_bias",), head_norms=True
    ),
}
