"""A layer of each side of the 2017 Transformer, from npgpt's operations (article chapter 2).

Post-norm (Add & Norm), fixed sinusoidal positions, ReLU; the sizes are the paper's base model.
"""

from __future__ import annotations

import math

import numpy as np

from npgpt.layers.attention import attention_forward
from npgpt.layers.feed_forward import feed_forward_forward
from npgpt.ops.heads import merge_heads_forward, split_heads_forward
from npgpt.ops.layer_norm import layer_norm_forward
from npgpt.ops.linear import linear_forward
from npgpt.ops.mask import causal_mask

N, D, H, F = 6, 512, 8, 2048  # the paper's base model

Layer = dict[str, list[np.ndarray]]  # sublayer -> W and b of its projections


def draw_layer(rng: np.random.Generator, *, cross: bool) -> Layer:
    """Random weights: W_Q, W_K, W_V, W_O of each attention, W_1 and W_2 of the FFN."""
    sizes = {"self": [(D, D)] * 4, "cross": [(D, D)] * 4, "ffn": [(D, F), (F, D)]}
    if not cross:
        del sizes["cross"]
    return {
        name: [a for m, n in each for a in (rng.normal(0, m**-0.5, (m, n)), np.zeros(n))]
        for name, each in sizes.items()
    }


def attention(
    reader: np.ndarray, source: np.ndarray, w: list[np.ndarray], mask: np.ndarray
) -> np.ndarray:
    """Q from the reader, K and V from the source; self-attention is reader = source."""
    inputs = (reader, source, source)
    q, k, v = (
        split_heads_forward(linear_forward(x, w[2 * i], w[2 * i + 1])[0], n_head=H)[0]
        for i, x in enumerate(inputs)
    )
    context, _ = attention_forward(q, k, v, divisor=math.sqrt(D // H), mask=mask)
    return linear_forward(merge_heads_forward(context)[0], w[6], w[7])[0]


def add_and_norm(x: np.ndarray, correction: np.ndarray) -> np.ndarray:
    """Post-norm: LN(x + Sublayer(x))."""
    return layer_norm_forward(x + correction, np.ones(D), np.zeros(D), eps=1e-5)[0]


def ffn(x: np.ndarray, w: list[np.ndarray]) -> np.ndarray:
    """512 -> 2048 -> ReLU -> 512."""
    return feed_forward_forward(x, *w, activation="relu")[0]


def encoder_layer(x: np.ndarray, w: Layer) -> np.ndarray:
    """Bidirectional self-attention, FFN."""
    everything = np.ones((len(x), len(x)), bool)
    x = add_and_norm(x, attention(x, x, w["self"], everything))
    return add_and_norm(x, ffn(x, w["ffn"]))


def decoder_layer(y: np.ndarray, source: np.ndarray, w: Layer) -> np.ndarray:
    """Causal self-attention, cross-attention, FFN."""
    y = add_and_norm(y, attention(y, y, w["self"], causal_mask(len(y), len(y))))
    y = add_and_norm(y, attention(y, source, w["cross"], np.ones((len(y), len(source)), bool)))
    return add_and_norm(y, ffn(y, w["ffn"]))


def sinusoids(T: int) -> np.ndarray:
    """Fixed positions: sine and cosine of t at 256 speeds, [T, d]."""
    angle = np.arange(T)[:, None] / 10_000 ** (np.arange(0, D, 2) / D)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(T, D)
