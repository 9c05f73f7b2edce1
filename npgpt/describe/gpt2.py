"""A GPT-2 or GPT-Neo from its configuration alone: boxes, parameter table, FLOPs, memory.

T, the number of tokens, stays a letter in all axes until something is counted. FLOPs are those of
the matrix products, 2 for each multiply-add, attention weights counted whole (mask or not); those
of lookups, additions, LayerNorm, softmax and the activation function are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from npgpt.describe.tables import Line, Wanted, parameter_lines, parts
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.models.gpt_neo.config import GPTNeoConfig
from npgpt.ops.activation import ACTIVATIONS

T = "T"
Axes = tuple[int | str, ...]  # [T, d] of GPT-2 small is ("T", 768)
Shapes = Mapping[str, tuple[int, ...]]

LINES: tuple[Wanted, ...] = (
    (0, "wte", "wte."),
    (0, "wpe", "wpe."),
    (1, "attention", "h.0.attn."),
    *parts(2, "h.0.attn.", W_Q="q.", W_K="k.", W_V="v.", W_O="c_proj."),
    (1, "FFN", "h.0.mlp."),
    *parts(2, "h.0.mlp.", W_1="c_fc.", W_2="c_proj."),
    (1, "two LayerNorms", "h.0.ln_"),
    (0, "block", "h.0."),
    (0, "blocks", "h."),
    (0, "ln_f", "ln_f."),
    (0, "lm_head", "lm_head."),
    (0, "total", ""),
    (0, "embedding", ("wte.", "wpe.")),
    (0, "without wpe", ("wte.", "h.", "ln_f.", "lm_head.")),
)


# How a GPT-Neo, whose W_Q, W_K and W_V are stored apart, names them -> as in LINES.
APART = {
    **{f"attn.attention.{part}_proj.": f"attn.{part}." for part in "qkv"},
    "attn.attention.out_proj.": "attn.c_proj.",
}


class Box(NamedTuple):
    """One box of the diagram: what goes in, what comes out, what it costs.

    `product` are the axes of its matrix product, result and summed axis: one multiply-add for each
    combination. `kept` are the arrays that backward reads and no earlier box has kept.
    """

    name: str
    inputs: Sequence[Axes]
    outputs: Sequence[Axes]
    parameters: int = 0
    product: Axes = ()
    kept: Sequence[Axes] = ()

    def flops(self, tokens: int) -> int:
        """Of all its tokens together, 2 for each multiply-add."""
        return 2 * count(self.product, tokens) if self.product else 0


class Structure(NamedTuple):
    """The boxes in the order of the forward pass; those of `block` come n_layer times."""

    config: GPT2Config
    stem: list[Box]
    block: list[Box]
    top: list[Box]

    def all_boxes(self) -> list[Box]:
        """Every box as often as it comes."""
        return [*self.stem, *self.block * self.config.n_layer, *self.top]


class Cost(NamedTuple):
    """An amount, and how it grows: "T" doubles with T, "T²" becomes four times as much."""

    name: str
    amount: int
    grows: str


def count(axes: Axes, tokens: int) -> int:
    """How many numbers an array with these axes has."""
    return math.prod(tokens if isinstance(axis, str) else axis for axis in axes)


def structure_of(config: GPT2Config) -> Structure:
    """The boxes of a GPT-2 (article 1.1 and 11.1)."""
    d, V = config.n_embd, config.vocab_size
    x, logits = (T, d), (T, V)
    shapes = param_shapes(config)
    own_head = math.prod(shapes.get("lm_head.weight", (0,)))
    stem = [
        Box("wte", [(T,)], [x], math.prod(shapes["wte.weight"])),
        Box("+ wpe", [x], [x], math.prod(shapes["wpe.weight"])),
    ]
    top = [
        _layer_norm("ln_f", shapes),
        Box("lm_head", [x], [logits], own_head, product=(T, d, V), kept=[x]),
        Box("softmax", [logits], [logits]),
    ]
    # All blocks are alike: the shapes of the first, its names without `h.0.`.
    block = {name[4:]: shape for name, shape in shapes.items() if name.startswith("h.0.")}
    return Structure(config, stem, [*_attention(config, block), *_ffn(config, block)], top)


def _attention(config: GPT2Config, shapes: Shapes) -> list[Box]:
    """Article 7.3 and 7.6: LayerNorm, the six steps in H heads, W_O, and back on the stream."""
    d, H = config.n_embd, config.n_head
    d_h = d // H
    x, qkv, head, probs = (T, d), (T, 3 * d), (H, T, d_h), (H, T, T)
    product = (H, T, T, d_h)  # every query with every key, the masked half too
    if isinstance(config, GPTNeoConfig):
        q, k, v = (_linear(f"attn.attention.{part}_proj", shapes, kept=[x]) for part in "qkv")
        projected, cut, mask = [q._replace(kept=[x, x]), k, v], [x, x, x], "mask softmax"
        W_O = "attn.attention.out_proj"
    else:
        projected = [_linear("attn.c_attn", shapes, kept=[x, qkv])]
        cut, mask, W_O = [qkv], "scale mask softmax", "attn.c_proj"
    return [
        _layer_norm("ln_1", shapes),
        *projected,
        Box("cut into heads", cut, [head, head, head]),
        Box("scores q kᵀ", [head, head], [probs], product=product),
        Box(mask, [probs], [probs], kept=[probs]),
        Box("weighted sum of v", [probs, head], [head], product=product),
        Box("join heads", [head], [x]),
        _linear(W_O, shapes, kept=[x]),
        Box("+", [x, x], [x]),
    ]


def _ffn(config: GPT2Config, shapes: Shapes) -> list[Box]:
    """Article 8.1: LayerNorm, widen, activate, narrow, and back on the stream."""
    d, activation = config.n_embd, config.activation_function
    x, wide = (T, d), (T, config.ffn_width)
    return [
        _layer_norm("ln_2", shapes),
        _linear("mlp.c_fc", shapes, kept=[x]),
        Box(activation, [wide], [wide], kept=[wide] * _arrays_kept_by(activation)),
        _linear("mlp.c_proj", shapes, kept=[wide]),
        Box("+", [x, x], [x]),
    ]


def _layer_norm(name: str, shapes: Shapes) -> Box:
    # Kept: the normalised vectors, and 1 / (standard deviation) of each token.
    (d,) = shapes[f"{name}.weight"]
    return Box(name, [(T, d)], [(T, d)], 2 * d, kept=[(T, d), (T, 1)])


def _linear(name: str, shapes: Shapes, kept: Sequence[Axes]) -> Box:
    d_in, d_out = shapes[f"{name}.weight"]
    parameters = d_in * d_out + math.prod(shapes.get(f"{name}.bias", (0,)))
    name = name.removeprefix("attn.attention.")  # a GPT-Neo's, too long for a terminal
    return Box(name, [(T, d_in)], [(T, d_out)], parameters, (T, d_in, d_out), kept)


def _arrays_kept_by(activation: str) -> int:
    """How many arrays like its input an activation function keeps besides its result.

    Asked of the function itself. ReLU keeps an array of booleans, which is not counted.
    """
    y, saved = ACTIVATIONS[activation][0](np.zeros(1, np.float32))
    arrays = saved if isinstance(saved, tuple) else (saved,)
    return sum(array is not y and array.dtype == y.dtype for array in arrays)


def gpt2_lines(config: GPT2Config) -> list[Line]:
    """The parameter table (article 11.2 with 7.7). A tied head has no parameters of its own."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, (*rows, columns) in param_shapes(config).items():
        if ".c_attn." in name:  # W_Q, W_K and W_V side by side
            thirds = (name.replace("c_attn", part) for part in "qkv")
            shapes |= dict.fromkeys(thirds, (*rows, columns // 3))
        else:
            for part, ours in APART.items():
                name = name.replace(part, ours)
            shapes[name] = (*rows, columns)
    return parameter_lines(shapes, LINES, ("h.0.",))


def flops(structure: Structure, tokens: int, batch: int) -> list[Cost]:
    """Of a forward pass over `batch` texts of so many tokens; a backward pass takes twice that."""
    block = structure.block * structure.config.n_layer
    with_probs = [box for box in block if box.product.count(T) == 2]
    matrices = [box for box in block if box.product.count(T) == 1]

    def cost(name: str, boxes: list[Box]) -> Cost:
        return _cost(name, lambda n: batch * sum(box.flops(n) for box in boxes), tokens)

    return [
        cost("matrices of the blocks", matrices),
        cost("scores and weighted sums", with_probs),
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
    probs: Axes = (H, T, T)
    kept = [axes for box in structure.all_boxes() for axes in box.kept]

    def cost(name: str, arrays: list[Axes]) -> Cost:
        def size(n: int) -> int:
            return batch * bytes_each * sum(count(axes, n) for axes in arrays)

        return _cost(name, size, tokens)

    parameters = sum(box.parameters for box in structure.all_boxes())
    return [
        Cost("parameters", bytes_each * parameters, ""),
        cost("residual stream", [(T, d)]),
        cost("weight tables of a layer", [probs]),
        cost("weight tables of all layers", [probs] * L),
        cost("KV cache", [(L, 2, T, d)]),
        cost("logits", [(T, config.vocab_size)]),
        cost("kept for backward, no tables", [axes for axes in kept if axes != probs]),
        cost("kept for backward, with tables", kept),
    ]


def _cost(name: str, amount: Callable[[int], int], tokens: int) -> Cost:
    growth = amount(2 * tokens) / amount(tokens)
    return Cost(name, amount(tokens), {2.0: "T", 4.0: "T²"}.get(growth, "T and T²"))
