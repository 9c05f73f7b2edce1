"""A GPT-2's boxes from its configuration alone: shapes, parameters, products, what backward keeps.

Every count of parameters comes from `param_shapes`. T, the number of tokens, stays a letter in all
axes until something is counted. Leaves out the weights themselves, and drawing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.ops.activation import ACTIVATIONS

PRESETS = {
    "gpt2": GPT2Config(),
    "gpt2-medium": GPT2Config(n_embd=1024, n_layer=24, n_head=16),
    "gpt2-large": GPT2Config(n_embd=1280, n_layer=36, n_head=20),
    "gpt2-xl": GPT2Config(n_embd=1600, n_layer=48, n_head=25),
}

T = "T"
Axes = tuple[int | str, ...]  # [T, d] of GPT-2 small is ("T", 768)
Shapes = Mapping[str, tuple[int, ...]]


class Box(NamedTuple):
    """One box of the diagram: what goes in, what comes out, what it costs.

    `product` are the axes of its matrix product, result and summed axis: one multiply-add for each
    combination. `kept` are the arrays that backward reads and no earlier box has kept.
    """

    name: str
    inputs: tuple[Axes, ...]
    outputs: tuple[Axes, ...]
    parameters: int
    product: Axes
    kept: tuple[Axes, ...]

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


def count(axes: Axes, tokens: int) -> int:
    """How many numbers an array with these axes has."""
    return math.prod(tokens if isinstance(axis, str) else axis for axis in axes)


def structure_of(config: GPT2Config) -> Structure:
    """The boxes of a GPT-2 (article 1.1 and 11.1)."""
    d, V = config.n_embd, config.vocab_size
    x, logits = (T, d), (T, V)
    shapes = param_shapes(config)
    own_head = [] if config.tie_word_embeddings else ["lm_head.weight"]
    stem = [
        _box("wte", [(T,)], [x], shapes, ["wte.weight"]),
        _box("+ wpe", [x], [x], shapes, ["wpe.weight"]),
    ]
    top = [
        _layer_norm("ln_f", d, shapes),
        _box("lm_head", [x], [logits], shapes, own_head, product=(T, d, V), kept=[x]),
        _box("softmax", [logits], [logits]),
    ]
    return Structure(config, stem, [*_attention(config), *_ffn(config)], top)


def _attention(config: GPT2Config) -> list[Box]:
    """Article 7.3 and 7.6: LayerNorm, the six steps in H heads, W_O, and back on the stream."""
    d, H = config.n_embd, config.n_head
    d_h = d // H
    x, qkv, head, table = (T, d), (T, 3 * d), (H, T, d_h), (H, T, T)
    shapes = _shapes_of_block(config)
    meeting = (H, T, T, d_h)  # every query with every key: the table is computed whole
    return [
        _layer_norm("ln_1", d, shapes),
        _linear("attn.c_attn", shapes, kept=[x, qkv]),
        _box("cut into heads", [qkv], [head, head, head]),
        _box("scores q kᵀ", [head, head], [table], product=meeting),
        _box("scale mask softmax", [table], [table], kept=[table]),
        _box("weighted sum of v", [table, head], [head], product=meeting),
        _box("join heads", [head], [x]),
        _linear("attn.c_proj", shapes, kept=[x]),
        _box("+", [x, x], [x]),
    ]


def _ffn(config: GPT2Config) -> list[Box]:
    """Article 8.1: LayerNorm, widen, bend, narrow, and back on the stream."""
    d, activation = config.n_embd, config.activation_function
    x, wide = (T, d), (T, config.ffn_width)
    shapes = _shapes_of_block(config)
    return [
        _layer_norm("ln_2", d, shapes),
        _linear("mlp.c_fc", shapes, kept=[x]),
        _box(activation, [wide], [wide], kept=[wide] * _arrays_kept_by(activation)),
        _linear("mlp.c_proj", shapes, kept=[wide]),
        _box("+", [x, x], [x]),
    ]


def _box(
    name: str,
    inputs: Sequence[Axes],
    outputs: Sequence[Axes],
    shapes: Shapes | None = None,
    weights: Iterable[str] = (),
    *,
    product: Axes = (),
    kept: Sequence[Axes] = (),
) -> Box:
    parameters = 0 if shapes is None else sum(math.prod(shapes[weight]) for weight in weights)
    return Box(name, tuple(inputs), tuple(outputs), parameters, product, tuple(kept))


def _layer_norm(name: str, d: int, shapes: Shapes) -> Box:
    # Kept: the normalised vectors, and 1 / (standard deviation) of each token.
    weights = [f"{name}.weight", f"{name}.bias"]
    return _box(name, [(T, d)], [(T, d)], shapes, weights, kept=[(T, d), (T, 1)])


def _linear(name: str, shapes: Shapes, kept: Sequence[Axes]) -> Box:
    weights = [f"{name}.weight", f"{name}.bias"]
    d_in, d_out = shapes[weights[0]]
    product = (T, d_in, d_out)
    return _box(name, [(T, d_in)], [(T, d_out)], shapes, weights, product=product, kept=kept)


def _shapes_of_block(config: GPT2Config) -> dict[str, tuple[int, ...]]:
    """All blocks are alike: the shapes of the first, its names without `h.0.`."""
    shapes = param_shapes(config).items()
    return {name[4:]: shape for name, shape in shapes if name.startswith("h.0.")}


def _arrays_kept_by(activation: str) -> int:
    """How many arrays like its input an activation function keeps besides its result.

    Asked of the function itself. ReLU keeps an array of booleans, which is not counted.
    """
    y, saved = ACTIVATIONS[activation][0](np.zeros(1, np.float32))
    arrays = saved if isinstance(saved, tuple) else (saved,)
    return sum(array is not y and array.dtype == y.dtype for array in arrays)
