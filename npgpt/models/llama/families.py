"""Llama's relatives: who they are for transformers, and what each has that Llama has not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

WINDOWS = ("sliding_window", "use_sliding_window", "max_window_layers", "layer_types")
BIASES = ("attention_bias", "mlp_bias")
# What says when there are experts, and how they are weighed; a mixtral has them always, weights
# that sum to 1, and its experts are `intermediate_size` wide.
SPARSE = ("norm_topk_prob", "moe_intermediate_size", "decoder_sparse_step", "mlp_only_layers")
EXPERTS = (
    *("num_local_experts", "num_experts_per_tok", *SPARSE),
    *("output_router_logits", "router_aux_loss_coef"),
)


class Experts(NamedTuple):
    """The names that a family's experts have in its checkpoints.

    part: the module of a block, which is `mlp` in transformers 5 once it is loaded.
    matrices: those of an expert: gate, up and down.
    """

    part: str
    matrices: tuple[str, str, str]


class Family(NamedTuple):
    """What a `model_type` stands for.

    cls: transformers' class.
    defaults: what transformers takes where the file is silent and Llama would take something else.
    unread: settings of other relatives, which transformers does not read in this one.
    qkv_bias: whether queries, keys and values have biases, whatever `attention_bias` says.
    head_norms: whether each query and key is normed before it is turned.
    experts: how they are called, if it may have any.
    """

    cls: str
    defaults: Mapping[str, Any] = {}
    unread: tuple[str, ...] = ()
    qkv_bias: bool = False
    head_norms: bool = False
    experts: Experts | None = None


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
    "llama": Family("LlamaForCausalLM", unread=(*WINDOWS, *EXPERTS)),
    "mistral": Family(
        "MistralForCausalLM",
        {
            "intermediate_size": 14336,
            "num_key_value_heads": 8,
            "max_position_embeddings": 4096 * 32,
            "sliding_window": 4096,
        },
        unread=(*BIASES, *WINDOWS[1:], *EXPERTS),
    ),
    "mixtral": Family(
        "MixtralForCausalLM",
        {
            "intermediate_size": 14336,
            "num_key_value_heads": 8,
            "max_position_embeddings": 4096 * 32,
            "rms_norm_eps": 1e-5,
            "rope_theta": 1e6,
            "num_local_experts": 8,
        },
        unread=(*BIASES, *WINDOWS[1:], *SPARSE),
        experts=Experts("block_sparse_moe", ("w1", "w3", "w2")),
    ),
    "qwen2": Family("Qwen2ForCausalLM", QWEN, unread=(*BIASES, *EXPERTS), qkv_bias=True),
    "qwen3": Family(
        "Qwen3ForCausalLM",
        {**QWEN, "head_dim": 128},
        unread=("mlp_bias", *EXPERTS),
        head_norms=True,
    ),
    "qwen3_moe": Family(
        "Qwen3MoeForCausalLM",
        {
            **QWEN,
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_hidden_layers": 24,
            "num_key_value_heads": 4,
            "num_local_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
        },
        unread=("mlp_bias", "max_window_layers", "layer_types"),
        head_norms=True,
        experts=Experts("mlp", ("gate_proj", "up_proj", "down_proj")),
    ),
}
