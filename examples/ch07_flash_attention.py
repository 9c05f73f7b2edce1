"""Attention without ever writing the table of weights: tiles and a running softmax (article 7.6).

What FlashAttention computes, not how fast: the loop is plain NumPy. Held against npgpt's six steps
and its own `flash_attention`, forward and backward; what they keep and allocate is measured.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable

import numpy as np
from show import claim, heading, say

from npgpt.cli import left
from npgpt.layers.attention import attention_backward, attention_forward
from npgpt.ops.flash_attention import flash_attention_forward
from npgpt.ops.mask import causal_mask, mask_forward
from npgpt.ops.scores import scale_forward, scores_forward

TILE = 16
D_H = 64
ROOT = math.sqrt(D_H)


def tiles(T: int) -> list[slice]:
    return [slice(start, start + TILE) for start in range(0, T, TILE)]


def tile_scores(q: np.ndarray, k: np.ndarray, tile: slice) -> np.ndarray:
    """Steps 2, 3, 4 for the keys of one tile: [T, TILE]."""
    scores, _ = scale_forward(scores_forward(q, k[tile])[0], divisor=ROOT)
    return mask_forward(scores, causal_mask(len(q), len(q))[:, tile])[0]


def flash_forward(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """out [T, d_h], and log Σ exp of each row of scores [T]: all that backward needs besides."""
    T = len(q)
    best, total, out = np.full(T, -np.inf), np.zeros(T), np.zeros_like(v)
    for tile in tiles(T):
        scores = tile_scores(q, k, tile)
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
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dq, dk, dv: each tile of weights is computed again, used, and forgotten."""
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    mean = (dout * out).sum(axis=1, keepdims=True)  # softmax's Σ p dp, without the whole p
    for tile in tiles(len(q)):
        probs = np.exp(tile_scores(q, k, tile) - log_total[:, None])
        dv[tile] = probs.T @ dout
        dscores = probs * (dout @ v[tile].T - mean) / ROOT
        dq += dscores @ k[tile]
        dk[tile] = dscores.T @ q
    return dq, dk, dv


def six_steps(dout: np.ndarray, *qkv: np.ndarray) -> list[int]:
    """Forward and back with the table: how many numbers were kept besides q, k, v and out."""
    mask = causal_mask(len(dout), len(dout))
    _, saved = attention_forward(*qkv, divisor=ROOT, mask=mask)
    attention_backward(dout, saved)
    return saved.softmax[0].size


def in_tiles(dout: np.ndarray, *qkv: np.ndarray) -> int:
    """The same without it."""
    out, log_total = flash_forward(*qkv)
    flash_backward(dout, *qkv, out, log_total)
    return log_total.size


def measured(work: Callable[..., int], T: int, rng: np.random.Generator) -> tuple[int, float]:
    """Numbers kept for backward, and the most memory that `work` allocated at once, in MB."""
    arrays = rng.standard_normal((4, T, D_H))
    tracemalloc.start()
    kept = work(*arrays)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return kept, peak / 1e6


rng = np.random.default_rng(0)
q, k, v, dout = rng.standard_normal((4, 128, D_H))
mask = causal_mask(128, 128)
wanted, saved = attention_forward(q, k, v, divisor=ROOT, mask=mask)

heading(
    "7.6",
    say(f"forward, {TILE} keys at a time", f"前向，一次 {TILE} 个 key：每行的最大值与和边走边修正"),
)
out, log_total = flash_forward(q, k, v)
largest = say("largest difference", "最大差")
apart = np.abs(out - wanted).max()
claim(
    say("the same output as with the whole table: ", "输出与写出整张权重表时相同：")
    + f"{largest} {apart:.0e}",
    apart < 1e-13,
)
_, (*_, of_npgpt, _, _) = flash_attention_forward(q, k, v, divisor=ROOT, mask=mask)
apart = np.abs(log_total - of_npgpt[:, 0]).max()
claim(
    say(
        "log Σ exp, as npgpt's flash_attention keeps it: ",
        "log Σ exp 与 npgpt 的 flash_attention 存下的相同：",
    )
    + f"{largest} {apart:.0e}",
    apart < 1e-13,
)

heading("7.6", say("backward: the weights are computed again", "反向：把权重一块一块地重算出来"))
found = flash_backward(dout, q, k, v, out, log_total)
for name, ours, theirs in zip(
    ("dq", "dk", "dv"), found, attention_backward(dout, saved), strict=True
):
    apart = np.abs(ours - theirs).max()
    claim(f"{name}: {largest} {apart:.0e}", apart < 1e-12)

heading(
    "7.6",
    say(
        "one head, forward and back, measured: what is kept, and the peak of memory",
        "一个头，前向加反向，实测：存下多少个数，内存峰值多大",
    ),
)
for kind, work, times in (
    (say("six steps", "六步"), six_steps, 4),
    (say("in tiles", "分块"), in_tiles, 2),
):
    kept, peaks = zip(*(measured(work, T, rng) for T in (512, 1024)), strict=True)
    for T, numbers, peak in zip((512, 1024), kept, peaks, strict=True):
        print(f"  {left(kind, 10)} T = {T:4} {numbers:12,} {peak:10.1f} MB")
    growth = peaks[1] / peaks[0]
    claim(
        say(
            f"twice the text: {times} times as many numbers kept, {growth:.1f} times the peak",
            f"文字长一倍：存下的数是 {times} 倍，峰值是 {growth:.1f} 倍",
        ),
        kept[1] == times * kept[0] and abs(growth - times) < 0.3,
    )
table = 1024 * 1024 * 8 / 1e6
note = say("one table alone would take", "一张权重表就要")
claim(f"{note} {table:.1f} MB > {peaks[1]:.1f} MB", peaks[1] < table / 2)
