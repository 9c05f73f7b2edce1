"""Attention without ever writing the table of weights: tiles and a running softmax (article 7.6).

What FlashAttention computes, not how fast: the loop is plain NumPy. Held against npgpt's attention,
forward and backward.
"""

from __future__ import annotations

import math

import numpy as np
from show import claim, heading

from npgpt.layers.attention import attention_backward, attention_forward
from npgpt.ops.mask import causal_mask, mask_forward
from npgpt.ops.scores import scale_forward, scores_forward

TILE = 16


def tiles(T: int) -> list[slice]:
    return [slice(start, start + TILE) for start in range(0, T, TILE)]


def tile_scores(q: np.ndarray, k: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Steps 2, 3, 4 for the keys of one tile: [T, TILE]."""
    scores, _ = scale_forward(scores_forward(q, k)[0], divisor=math.sqrt(q.shape[-1]))
    return mask_forward(scores, mask)[0]


def flash_forward(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """out [T, d_h], and log Σ exp of each row of scores [T]: all that backward needs besides."""
    T = len(q)
    best, total, out = np.full(T, -np.inf), np.zeros(T), np.zeros_like(v)
    for tile in tiles(T):
        scores = tile_scores(q, k[tile], mask[:, tile])
        new_best = np.maximum(best, scores.max(axis=1))
        shrink = np.exp(best - new_best)  # what was summed so far, in terms of the new maximum
        weights = np.exp(scores - new_best[:, None])
        total = shrink * total + weights.sum(axis=1)
        out = shrink[:, None] * out + weights @ v[tile]
        best = new_best
    return out / total[:, None], best + np.log(total)


def flash_backward(
    dout: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    out: np.ndarray,
    log_total: np.ndarray,
    mask: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dq, dk, dv: each tile of weights is computed again, used, and forgotten."""
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    mean = (dout * out).sum(axis=1, keepdims=True)  # softmax's Σ p dp, without the whole p
    for tile in tiles(len(q)):
        probs = np.exp(tile_scores(q, k[tile], mask[:, tile]) - log_total[:, None])
        dv[tile] = probs.T @ dout
        dscores = probs * (dout @ v[tile].T - mean) / math.sqrt(q.shape[1])
        dq += dscores @ k[tile]
        dk[tile] = dscores.T @ q
    return dq, dk, dv


T, d_h = 128, 64
rng = np.random.default_rng(0)
q, k, v, dout = rng.standard_normal((4, T, d_h))
mask = causal_mask(T, T)
wanted, saved = attention_forward(q, k, v, divisor=math.sqrt(d_h), mask=mask)

heading(
    "7.6", f"forward, {TILE} keys at a time: maximum and sum of each row are corrected on the way"
)
out, log_total = flash_forward(q, k, v, mask)
apart = np.abs(out - wanted).max()
claim(f"the same output as with the whole table: largest difference {apart:.0e}", apart < 1e-13)

heading("7.6", "backward: the weights are computed again, tile by tile")
found = flash_backward(dout, q, k, v, out, log_total, mask)
for name, ours, theirs in zip(
    ("dq", "dk", "dv"), found, attention_backward(dout, saved), strict=True
):
    apart = np.abs(ours - theirs).max()
    claim(f"{name}: largest difference {apart:.0e}", apart < 1e-12)

heading("7.6", "numbers kept for backward besides q, k, v and out, one head")
print(f"  {'T':>8} {'table, T²':>16} {'log Σ exp, T':>16}")
for length in (1024, 8192, 131_072):
    print(f"  {length:8,} {length**2:16,} {length:16,}")
claim("twice the text: four times the table, twice the row", log_total.size == T)
