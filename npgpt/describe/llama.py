"""What `python -m npgpt.describe` says of a Llama: its parameters, and the KV cache.

Every count comes from `param_shapes`. Leaves out the boxes, FLOPs and the diagram that GPT-2 has.
"""

from __future__ import annotations

from typing import Any

from npgpt.describe import tables as describe_tables
from npgpt.describe.tables import Line, Wanted, texts, total_of
from npgpt.models.llama.config import LlamaConfig, param_shapes

LLAMA_3_8B = LlamaConfig(
    vocab_size=128256,
    intermediate_size=14336,
    num_key_value_heads=8,
    max_position_embeddings=8192,
    rms_norm_eps=1e-5,
    rope_theta=500000.0,
    bos_token_id=128000,
    eos_token_id=128001,
)
PRESETS = {"llama-3-8b": LLAMA_3_8B}

# The lines of the table; "layers.0." is any block.
LINES: tuple[Wanted, ...] = (
    (0, "embed_tokens", "embed_tokens."),
    (0, "a block", "layers.0."),
    (1, "attention", "layers.0.self_attn."),
    (2, "W_Q", "layers.0.self_attn.q_proj."),
    (2, "W_K", "layers.0.self_attn.k_proj."),
    (2, "W_V", "layers.0.self_attn.v_proj."),
    (2, "W_O", "layers.0.self_attn.o_proj."),
    (1, "MLP", "layers.0.mlp."),
    (2, "gate", "layers.0.mlp.gate_proj."),
    (2, "up", "layers.0.mlp.up_proj."),
    (2, "down", "layers.0.mlp.down_proj."),
    (0, "all blocks", "layers."),
    (0, "norm", "norm."),
    (0, "lm_head", "lm_head."),
    (0, "total", ""),
)


def parameter_lines(config: LlamaConfig) -> list[Line]:
    """The parameter table. A tied head has no parameters of its own."""
    return describe_tables.parameter_lines(param_shapes(config), LINES, ("layers.0.",))


def kv_cache_bytes(config: LlamaConfig, tokens: int, batch: int, each: int) -> tuple[int, int]:
    """Bytes of the KV cache: with the H_kv heads that are kept, and if there were H of them."""
    a_head = config.num_hidden_layers * 2 * tokens * config.d_h * batch * each
    return a_head * config.n_kv_head, a_head * config.num_attention_heads


def as_text(name: str, config: LlamaConfig, tokens: int, batch: int, each: int) -> str:
    """Everything for a reader; `parallel` is the size of a number in bytes."""
    H, H_kv = config.num_attention_heads, config.n_kv_head
    head = "is embed_tokens" if config.tie_word_embeddings else "has its own table"
    title = (
        f"{name}: {config.num_hidden_layers} blocks, d {config.hidden_size}, {H} heads of "
        f"{config.d_h} on {H_kv} of keys and values,\nMLP {config.intermediate_size} "
        f"({config.hidden_act}), rotary positions ({config.rope_type}, theta "
        f"{config.rope_theta:g}),\nvocabulary {config.vocab_size}, context "
        f"{config.max_position_embeddings}; lm_head {head}"
    )
    lines = parameter_lines(config)
    kept, unshared = kv_cache_bytes(config, tokens, batch, each)
    memory = {
        "parameters": total_of(lines) * each,
        "KV cache": kept,
        f"… if all {H} heads had their own keys": unshared,
    }
    below = f"Below: T = {tokens} tokens, {texts(batch, each)}"
    return describe_tables.as_text(title, lines, below, memory)


def as_json(name: str, config: LlamaConfig, tokens: int, batch: int, each: int) -> dict[str, Any]:
    """The same as an object."""
    lines = parameter_lines(config)
    kept, unshared = kv_cache_bytes(config, tokens, batch, each)
    about = {"model": name, "config": config.to_dict(), "tokens": tokens, "batch": batch}
    memory = {
        "parameters": total_of(lines) * each,
        "KV cache": kept,
        "KV cache, every head its own": unshared,
    }
    return describe_tables.as_object(about, lines, memory)
