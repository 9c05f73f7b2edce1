"""Stacks of attention and FFN, pre-norm and post-norm, and the gradients that come down in them.

Fresh weights N(0, 1/fan_in), npgpt's layers, a random gradient that enters at the top.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from npgpt.layers.feed_forward import feed_forward_backward, feed_forward_forward
from npgpt.layers.self_attention import self_attention_backward, self_attention_forward
from npgpt.ops.layer_norm import layer_norm_backward, layer_norm_forward
from npgpt.ops.mask import causal_mask

T, D, H = 8, 32, 4
DEPTHS, DRAWS = (1, 2, 4, 8, 16, 32), 8
ONE, ZERO = np.ones(D), np.zeros(D)


class Measured(NamedTuple):
    """Of one stack: gradients (norms), and the standard deviation of the trunk."""

    first: float  # at the input of the first block
    last: float  # of W_Q, W_K, W_V in the last block
    direct: float  # share of the top's gradient that comes down the "+" alone
    trunk: float
    along: float  # cosine of the gradients at the first block's input and at the top


def norm(x: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    return layer_norm_forward(x, ONE, ZERO, eps=1e-5)


def sublayer_weights(rng: np.random.Generator, k: int) -> list[np.ndarray]:
    """W and b of two projections: attention for even k, FFN for odd."""
    sizes = [(D, 3 * D), (D, D)] if k % 2 == 0 else [(D, 4 * D), (4 * D, D)]
    return [a for m, n in sizes for a in (rng.normal(0, m**-0.5, (m, n)), np.zeros(n))]


def measure(depth: int, *, pre: bool, seed: int) -> Measured:
    """Forward and backward through `depth` blocks."""
    rng = np.random.default_rng(seed)
    settings = {"n_head": H, "divisor": math.sqrt(D // H), "mask": causal_mask(T, T)}
    x, saved = rng.standard_normal((T, D)), []
    for k in range(2 * depth):
        read, saved_norm = norm(x) if pre else (x, None)
        w = sublayer_weights(rng, k)
        if k % 2 == 0:
            correction, saved_part = self_attention_forward(read, *w, **settings)
        else:
            correction, saved_part = feed_forward_forward(read, *w, activation="gelu_new")
        x = x + correction
        if not pre:
            x, saved_norm = norm(x)
        saved.append((saved_norm, saved_part))
    trunk = float(x.std())

    top = np.random.default_rng(99).standard_normal((T, D))
    if pre:
        top = layer_norm_backward(top, norm(x)[1])[0]  # ln_f
    dx, direct, last = top, top, None
    for k in reversed(range(2 * depth)):
        saved_norm, saved_part = saved[k]
        backward = (self_attention_backward, feed_forward_backward)[k % 2]
        if pre:
            dread, *dweights = backward(dx, saved_part)
            dx = dx + layer_norm_backward(dread, saved_norm)[0]
        else:
            dx, direct = (layer_norm_backward(d, saved_norm)[0] for d in (dx, direct))
            dread, *dweights = backward(dx, saved_part)
            dx = dx + dread
        last = dweights[0] if k == 2 * depth - 2 else last
    size = np.linalg.norm
    along = float((dx * top).sum() / (size(dx) * size(top)))
    kept = float(size(direct) / size(top))
    return Measured(float(size(dx)), float(size(last)), kept, trunk, along)


def by_depth(*, pre: bool) -> np.ndarray:
    """All measurements: [depths, draws, 5]."""
    return np.array([[measure(L, pre=pre, seed=s) for s in range(DRAWS)] for L in DEPTHS])
