"""What `python -m npgpt.describe` says of a BERT: its parameters, and what reading a text takes.

Every count comes from `param_shapes`. Leaves out the boxes, FLOPs and the diagram that GPT-2 has.
There is no KV cache to tell of: BERT reads all tokens at once and writes none.
"""

from __future__ import annotations

from typing import Any

from npgpt.describe import tables as describe_tables
from npgpt.describe.tables import Line, Wanted, several, texts, total_of
from npgpt.models.bert.config import BERTConfig, param_shapes

PRESETS = {"bert-base-uncased": BERTConfig()}

LAYER = "encoder.layer.0."  # any layer
BARE = ("embeddings.", "encoder.", "pooler.")
# A config.json does not say which of pooler and MLM head a checkpoint has: both have a line, and
# the total is that of BERT itself, with its pooler, as its size is usually given.
LINES: tuple[Wanted, ...] = (
    (0, "embeddings", "embeddings."),
    (1, "word_embeddings", "embeddings.word_embeddings."),
    (1, "position_embeddings", "embeddings.position_embeddings."),
    (1, "token_type_embeddings", "embeddings.token_type_embeddings."),
    (1, "LayerNorm", "embeddings.LayerNorm."),
    (0, "a layer", LAYER),
    (1, "attention", (f"{LAYER}attention.self.", f"{LAYER}attention.output.dense.")),
    (2, "W_Q", f"{LAYER}attention.self.query."),
    (2, "W_K", f"{LAYER}attention.self.key."),
    (2, "W_V", f"{LAYER}attention.self.value."),
    (2, "W_O", f"{LAYER}attention.output.dense."),
    (1, "FFN", (f"{LAYER}intermediate.", f"{LAYER}output.dense.")),
    (2, "W_1", f"{LAYER}intermediate.dense."),
    (2, "W_2", f"{LAYER}output.dense."),
    (1, "two LayerNorms", (f"{LAYER}attention.output.LayerNorm.", f"{LAYER}output.LayerNorm.")),
    (0, "all layers", "encoder.layer."),
    (0, "pooler", "pooler."),
    (0, "total", BARE),
    (0, "MLM head", "cls.predictions."),
    (1, "transform", "cls.predictions.transform."),
    (1, "decoder", "cls.predictions.decoder."),
    (1, "bias", "cls.predictions.bias"),
    (0, "with MLM head, without pooler", ("embeddings.", "encoder.", "cls.predictions.")),
    (0, "with both", ""),
)


def parameter_lines(config: BERTConfig) -> list[Line]:
    """The parameter table. A tied decoder of the MLM head has no parameters of its own."""
    return describe_tables.parameter_lines(param_shapes(config), LINES, (LAYER,), BARE)


def memory_bytes(config: BERTConfig, tokens: int, batch: int, each: int) -> dict[str, int]:
    """Bytes for `batch` texts of so many tokens; every token looks at all of them."""
    tables = config.num_attention_heads * tokens * tokens * batch * each
    return {
        "parameters": total_of(parameter_lines(config)) * each,
        "hidden states": tokens * config.hidden_size * batch * each,
        "weight tables of a layer": tables,
        "weight tables of all layers": config.num_hidden_layers * tables,
        "logits of the MLM head": tokens * config.vocab_size * batch * each,
    }


def as_text(name: str, config: BERTConfig, tokens: int, batch: int, each: int) -> str:
    """Everything for a reader; `parallel` is the size of a number in bytes."""
    d, H = config.hidden_size, config.num_attention_heads
    head = "is word_embeddings" if config.tie_word_embeddings else "has its own table"
    title = (
        f"{name}: {several(config.num_hidden_layers, 'layer')}, d {d}, "
        f"{several(H, 'head')} of {d // H}, FFN {config.intermediate_size} ({config.hidden_act}),\n"
        "post-norm, every token sees all others, learned positions, "
        f"{several(config.type_vocab_size, 'token type')},\n"
        f"vocabulary {config.vocab_size}, context {config.max_position_embeddings}; "
        f"decoder of the MLM head {head}"
    )
    below = f"Below: T = {tokens} tokens, {texts(batch, each)}"
    memory = memory_bytes(config, tokens, batch, each)
    return describe_tables.as_text(title, parameter_lines(config), below, memory, "layer")


def as_json(name: str, config: BERTConfig, tokens: int, batch: int, each: int) -> dict[str, Any]:
    """The same as an object."""
    about = {"model": name, "config": config.to_dict(), "tokens": tokens, "batch": batch}
    memory = memory_bytes(config, tokens, batch, each)
    return describe_tables.as_object(about, parameter_lines(config), memory)
