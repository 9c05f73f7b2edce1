"""What a GPT-2 costs: the parameter table of chapter 11, FLOPs, memory, and how each grows with T.

FLOPs are those of the matrix products, 2 for each multiply-add, weight tables counted whole (mask
or not). Left out: lookups, additions, LayerNorm, softmax, the activation function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from npgpt.describe.structure import Axes, Box, Structure, T, count
from npgpt.models.gpt2.config import GPT2Config, param_shapes

BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


class Part(NamedTuple):
    """A line of the parameter table; shares are fractions, of the model and of a block."""

    name: str
    parameters: int
    share: float
    of_block: float | None


class Cost(NamedTuple):
    """An amount, and how it grows: "T" doubles with T, "T²" becomes four times as much."""

    name: str
    amount: int
    grows: str


def parameter_table(config: GPT2Config) -> list[Part]:
    """Article 11.2 with 7.7. A tied head has no parameters of its own."""
    sizes = {name: math.prod(shape) for name, shape in param_shapes(config).items()}
    total = sum(sizes.values())

    def size(*beginnings: str) -> int:
        return sum(n for name, n in sizes.items() if name.startswith(beginnings))

    block, wpe = size("h.0."), size("wpe.")
    projection = size("h.0.attn.c_attn.") // 3  # W_Q, W_K and W_V side by side
    in_block = {
        "attention": size("h.0.attn."),
        "W_Q": projection,
        "W_K": projection,
        "W_V": projection,
        "W_O": size("h.0.attn.c_proj."),
        "FFN": size("h.0.mlp."),
        "W_1": size("h.0.mlp.c_fc."),
        "W_2": size("h.0.mlp.c_proj."),
        "two LayerNorms": size("h.0.ln_"),
        "block": block,
    }
    around = {
        "blocks": size("h."),
        "ln_f": size("ln_f."),
        "lm_head": size("lm_head."),
        "total": total,
        "embedding": size("wte.") + wpe,
        "without wpe": total - wpe,
    }
    tables = {"wte": size("wte."), "wpe": wpe}
    return [
        *(Part(name, n, n / total, None) for name, n in tables.items()),
        *(Part(name, n, n / total, n / block) for name, n in in_block.items()),
        *(Part(name, n, n / total, None) for name, n in around.items()),
    ]


def flops(structure: Structure, tokens: int, batch: int) -> list[Cost]:
    """Of a forward pass over `batch` texts of so many tokens; a backward pass takes twice that."""
    block = structure.block * structure.config.n_layer
    with_tables = [box for box in block if box.product.count(T) == 2]
    matrices = [box for box in block if box.product.count(T) == 1]

    def cost(name: str, boxes: list[Box]) -> Cost:
        return _cost(name, lambda n: batch * sum(box.flops(n) for box in boxes), tokens)

    return [
        cost("matrices of the blocks", matrices),
        cost("scores and weighted sums", with_tables),
        cost("lm_head", structure.top),
        cost("all", structure.all_boxes()),
    ]


def memory(structure: Structure, tokens: int, batch: int, bytes_each: int) -> list[Cost]:
    """Bytes for `batch` texts of so many tokens.

    "kept for backward" is what a forward pass leaves for the backward pass, without dropout; the
    logits are a line of their own.
    """
    config = structure.config
    d, H, L = config.n_embd, config.n_head, config.n_layer
    table: Axes = (H, T, T)
    kept = [axes for box in structure.all_boxes() for axes in box.kept]

    def cost(name: str, arrays: list[Axes]) -> Cost:
        def size(n: int) -> int:
            return batch * bytes_each * sum(count(axes, n) for axes in arrays)

        return _cost(name, size, tokens)

    parameters = sum(box.parameters for box in structure.all_boxes())
    return [
        Cost("parameters", bytes_each * parameters, ""),
        cost("residual stream", [(T, d)]),
        cost("weight tables of a layer", [table]),
        cost("weight tables of all layers", [table] * L),
        cost("KV cache", [(L, 2, T, d)]),
        cost("logits", [(T, config.vocab_size)]),
        cost("kept for backward, no tables", [axes for axes in kept if axes != table]),
        cost("kept for backward, with tables", kept),
    ]


def _cost(name: str, amount: Callable[[int], int], tokens: int) -> Cost:
    growth = amount(2 * tokens) / amount(tokens)
    return Cost(name, amount(tokens), {2.0: "T", 4.0: "T²"}.get(growth, "T and T²"))
