"""What `python -m npgpt.describe` says of an encoder-decoder: its parameters, and its KV caches.

Every count comes from `param_shapes`. Leaves out the boxes, FLOPs and the diagram that GPT-2 has.
S are the tokens of the source, which the encoder reads; T those of the target.
"""

from __future__ import annotations

from typing import Any

from npgpt.describe import tables as describe_tables
from npgpt.describe.tables import Line, Wanted, by_path, several, texts, total_of
from npgpt.models.transformer.config import TransformerConfig
from npgpt.models.transformer.params import param_shapes

PRESETS = {
    "transformer-base": TransformerConfig(),
    "bart-base": TransformerConfig.from_dict(
        {
            "model_type": "bart",
            "d_model": 768,
            **{f"{side}_layers": 6 for side in ("encoder", "decoder")},
            **{f"{side}_attention_heads": 12 for side in ("encoder", "decoder")},
            **{f"{side}_ffn_dim": 3072 for side in ("encoder", "decoder")},
        }
    ),
}
BLOCKS = ("encoder.layers.0.", "decoder.layers.0.")  # any layer of each side
BIAS = "final_logits_bias"  # stored, but never trained: no parameter


def parameter_lines(config: TransformerConfig) -> list[Line]:
    """The parameter table. A tied head, and sinusoids, have no parameters of their own."""
    shapes = param_shapes(config)
    bias = shapes.pop(BIAS, None)
    lines = describe_tables.parameter_lines(shapes, _wanted(config), BLOCKS)
    if bias is not None:
        total, size = total_of(lines), config.target_vocab_size
        lines.append(Line(0, BIAS, size, size / total, None))
    return lines


def _wanted(config: TransformerConfig) -> list[Wanted]:
    tables = dict.fromkeys((config.source_table, config.target_table))
    lines: list[Wanted] = [(0, name.removesuffix(".weight"), name) for name in tables]
    for side, block in zip(("encoder", "decoder"), BLOCKS, strict=True):
        if config.learned_positions:
            for part in ("embed_positions", "layernorm_embedding"):
                lines.append((0, f"{side}.{part}", f"{side}.{part}."))
        lines.append((0, f"{'an' if side == 'encoder' else 'a'} {side} layer", block))
        if side == "encoder":
            lines += _attention("self-attention", f"{block}self_attn.")
        else:
            lines += _attention("causal self-attention", f"{block}self_attn.")
            lines += _attention("cross-attention", f"{block}encoder_attn.", " of the source")
        norms = ("self_attn_layer_norm.", "encoder_attn_layer_norm.", "final_layer_norm.")
        lines += [
            (1, "FFN", (f"{block}fc1.", f"{block}fc2.")),
            (2, "W_1", f"{block}fc1."),
            (2, "W_2", f"{block}fc2."),
            (
                1,
                "two LayerNorms" if side == "encoder" else "three LayerNorms",
                tuple(block + norm for norm in norms),
            ),
            (0, f"all {side} layers", f"{side}.layers."),
        ]
    return [*lines, (0, "lm_head", "lm_head."), (0, "total", "")]


def _attention(name: str, begin: str, of: str = "") -> list[Wanted]:
    return [
        (1, name, begin),
        (2, "W_Q", f"{begin}q_proj."),
        (2, f"W_K{of}", f"{begin}k_proj."),
        (2, f"W_V{of}", f"{begin}v_proj."),
        (2, "W_O", f"{begin}out_proj."),
    ]


def memory_bytes(
    config: TransformerConfig, tokens: int, source: int, batch: int, each: int
) -> dict[str, int]:
    """Bytes for `batch` sources of S = `source` tokens and targets of T = `tokens`.

    The keys and values of the source are computed once and stay as they are; those of the target
    grow with every token that is written.
    """
    a_token = config.decoder_layers * 2 * config.d_model * batch * each
    read, write = config.encoder_attention_heads, config.decoder_attention_heads
    return {
        "parameters": total_of(parameter_lines(config)) * each,
        "what the encoder gives": source * config.d_model * batch * each,
        "KV cache of the source, for cross-attention": a_token * source,
        "KV cache of the target, for self-attention": a_token * tokens,
        "weight tables of an encoder layer": read * source**2 * batch * each,
        "weight tables of a decoder layer": write * tokens * (tokens + source) * batch * each,
        "logits": tokens * config.target_vocab_size * batch * each,
    }


def as_text(
    name: str, config: TransformerConfig, tokens: int, batch: int, each: int, source: int
) -> str:
    """Everything for a reader; `parallel` is the size of a number in bytes."""
    below = f"Below: S = {source} tokens of source, T = {tokens} of target, {texts(batch, each)}"
    memory = memory_bytes(config, tokens, source, batch, each)
    lines = [
        line._replace(name=f"{BIAS}, not trained") if line.name == BIAS else line
        for line in parameter_lines(config)
    ]
    return describe_tables.as_text(_title(name, config), lines, below, memory, "layer")


def _title(name: str, config: TransformerConfig) -> str:
    def stack(side: str) -> str:
        layers, heads, width = (
            getattr(config, f"{side}_{of}") for of in ("layers", "attention_heads", "ffn_dim")
        )
        stacked, split = several(layers, f"{side} layer"), several(heads, "head")
        return f"{stacked}, {split} of {config.d_model // heads}, FFN {width}"

    V, target_V = config.vocab_size, config.target_vocab_size
    vocabulary = f"{V}" if target_V == V else f"{V} and {target_V}"
    tied = config.tie_word_embeddings
    head = f"is {config.head_table.removesuffix('.weight')}" if tied else "has its own table"
    return (
        f"{name}: d {config.d_model}, {config.activation_function}, post-norm,\n"
        f"{stack('encoder')}; a token sees the whole source,\n"
        f"{stack('decoder')}; a token sees the target up to itself, and the source,\n"
        f"{'learned' if config.learned_positions else 'sinusoidal'} positions, vocabulary "
        f"{vocabulary}, context {config.max_position_embeddings}; "
        f"lm_head {head}"
    )


def as_json(
    name: str, config: TransformerConfig, tokens: int, batch: int, each: int, source: int
) -> dict[str, Any]:
    """The same as an object; a part is named after what it is part of as well."""
    about = {"model": name, "config": config.to_dict(), "tokens": tokens, "source": source}
    memory = memory_bytes(config, tokens, source, batch, each)
    lines = by_path(parameter_lines(config))
    return describe_tables.as_object({**about, "batch": batch}, lines, memory)
