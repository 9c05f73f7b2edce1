"""Attention that never writes the [T, S] table: tile by tile, with a running softmax (article 7.6).

The same function of q, k, v as the six steps, up to rounding. The table of H · T · S scores is what
makes those slow and large: it leaves the processor's cache between one step and the next. Here a
tile of it is made, used and forgotten, and made again in the backward pass, so that what is kept
grows with T and not with T². Tiles in which no query may look at any key, the upper triangle of a
causal mask, are skipped.

Leaves out dropout of the weights, and the weights themselves: the six steps have both
(`npgpt.layers.attention`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

import numpy as np

from npgpt.ops.threads import parallel_blas, thread_count

ROWS, KEYS = 64, 1024  # sizes of a tile; measured, but anything near is as good
CACHED = 1 << 18  # scores of a tile, all its heads together: 1 MB of float32
MANY = 1 << 19  # scores from which several threads are quicker

Part = tuple[int | slice, ...]

# the keys that a tile is of, those among them that not every row sees, what is hidden there
Tile = tuple[slice, slice, np.ndarray]
Rows = tuple[slice, list[Tile]]

# highest score, Σ exp(scores - highest), Σ exp(scores - highest) v
PartialSums = tuple[np.ndarray, np.ndarray, np.ndarray]

# q, k, v, context, log Σ exp(scores) [..., T, 1], divisor, mask
Saved = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, float, np.ndarray]


def flash_attention_forward(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, *, divisor: float, mask: np.ndarray
) -> tuple[np.ndarray, Saved]:
    """Steps 2 to 6 of attention in one operation. Article 7.3, 7.6.

        context = softmax(q kᵀ / divisor + M) v,        M = 0 where mask, -∞ elsewhere

    Softmax divides by a sum over all keys, of which a tile has only some. So each row of a tile
    gives its highest score m, and both sums relative to it; two tiles are joined by scaling the
    sums down to the higher m', and the division comes last:

        sum     = Σ_j exp(scores_j - m)             sum'     = exp(m - m') sum     + …
        context = Σ_j exp(scores_j - m) v_j         context' = exp(m - m') context + …

    Args:
        q: [..., T, d_h].
        k, v: [..., S, d_h]; v's width may differ.
        divisor: usually √d_h (7.4).
        mask: bool, broadcasts against [..., T, S]; True = may attend (7.5). A query that may attend
            to nothing gets zeros.

    Returns:
        context [..., T, d_h], and what backward reads.
    """
    divisor = float(divisor)  # an np.float64 would make float64 of float32
    # Laid out in memory as q is, so that the heads are merged without a copy.
    context = np.zeros_like(q, shape=(*q.shape[:-1], v.shape[-1]))
    log_total = np.zeros((*q.shape[:-1], 1), q.dtype)
    tiles_of = _tiles_of(q, k, mask)

    def attend(part: Part) -> None:
        # Products are faster in C order; dividing q costs less than dividing its scores.
        qs, ks_T, vs = (np.ascontiguousarray(x[part]) for x in (q, _swapped(k), v))
        qs = qs / divisor
        for rows, tiles in tiles_of(part):
            partial_sums = (
                _partial_sums(_scores(qs[..., rows, :], ks_T, tile), vs[..., tile[0], :])
                for tile in tiles
            )
            highest, total, mixed = reduce(_join, partial_sums)
            total = np.maximum(total, 1)  # the highest alone adds exp(0); 0 in a row without keys
            np.divide(mixed, total, out=context[part][..., rows, :])
            log_total[part][..., rows, :] = highest + np.log(total)

    _each_part(attend, q, k)
    return context, (q, k, v, context, log_total, divisor, mask)


def flash_attention_backward(
    dcontext: np.ndarray, saved: Saved
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of q, k and v, from weights that are computed once more, tile by tile.

    The sum over all keys is known by now, so a tile's weights come out final at once:

        P = exp(scores - log Σ exp(scores))
        dV = Pᵀ dcontext
        dP = dcontext Vᵀ
        dS = P (dP - D),        D_i = Σ_j P_ij dP_ij = dcontext_i · context_i
        dq = dS K / divisor,    dk = dSᵀ q / divisor

    D is softmax's inner sum (see `softmax_backward`), which would need the whole row; with
    dP_ij = dcontext_i · v_j it becomes the product of two vectors that are there already.

    Args:
        dcontext: [..., T, d_h].

    Returns:
        dq [..., T, d_h], dk and dv [..., S, d_h].
    """
    q, k, v, context, log_total, divisor, mask = saved
    dq, dk, dv = (np.empty_like(x) for x in (q, k, v))
    tiles_of = _tiles_of(q, k, mask)

    def attend_back(part: Part) -> None:
        arrays = (q, k, _swapped(k), _swapped(v), dcontext)
        qs, ks, ks_T, vs_T, dout = (np.ascontiguousarray(x[part]) for x in arrays)
        qs = qs / divisor
        inner = np.vecdot(dout, context[part])[..., None]  # D [..., T, 1]
        dqs, dks, dvs = (np.zeros_like(x[part], order="C") for x in (q, k, v))
        for rows, tiles in tiles_of(part):
            q_rows, dout_rows = qs[..., rows, :], dout[..., rows, :]
            for tile in tiles:
                keys, scores = tile[0], _scores(q_rows, ks_T, tile)
                scores -= log_total[part][..., rows, :]
                weights = np.exp(scores, out=scores)
                dvs[..., keys, :] += _swapped(weights) @ dout_rows
                dscores = dout_rows @ vs_T[..., keys]
                dscores -= inner[..., rows, :]
                dscores *= weights
                dqs[..., rows, :] += dscores @ ks[..., keys, :]
                dks[..., keys, :] += _swapped(dscores) @ q_rows
        np.divide(dqs, divisor, out=dq[part])
        dk[part], dv[part] = dks, dvs

    _each_part(attend_back, q, k)
    return dq, dk, dv


def _partial_sums(scores: np.ndarray, v: np.ndarray) -> PartialSums:
    """Of the keys of one tile; uses `scores` up."""
    lowest = np.finfo(scores.dtype).min  # in a row without keys, as -∞ - -∞ would be NaN
    highest = scores.max(axis=-1, keepdims=True, initial=lowest)
    scores -= highest
    weights = np.exp(scores, out=scores)
    return highest, weights.sum(axis=-1, keepdims=True), weights @ v


def _join(one: PartialSums, other: PartialSums) -> PartialSums:
    """Those of the keys of both."""
    highest = np.maximum(one[0], other[0])
    shrink, shrink_other = np.exp(one[0] - highest), np.exp(other[0] - highest)
    total, mixed = (a * shrink + b * shrink_other for a, b in zip(one[1:], other[1:], strict=True))
    return highest, total, mixed


def _swapped(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2)


def _scores(q: np.ndarray, k_T: np.ndarray, tile: Tile) -> np.ndarray:
    """Those of one tile, -∞ where hidden. The same in both passes, to the last bit."""
    keys, partly, hidden = tile
    scores = q @ k_T[..., keys]
    np.copyto(scores[..., partly], -np.inf, where=hidden)
    return scores


def _each_part(function: Callable[[Part], object], q: np.ndarray, k: np.ndarray) -> None:
    """Call `function` with indices of q's leading axes: each a sequence, or some of its heads.

    Heads are cut apart where the sequences alone cannot be shared out evenly among threads, and
    where their tiles together would be too large to stay in the cache.
    """
    heads = math.prod(q.shape[-3:-2])
    sequences = list(np.ndindex(q.shape[:-3]))
    many = len(sequences) * heads * q.shape[-2] * k.shape[-2] >= MANY
    count = thread_count() if many else 1
    together = max(1, CACHED // (min(ROWS, q.shape[-2]) * min(KEYS, k.shape[-2])))
    share = count // math.gcd(count, len(sequences))
    pieces = math.ceil(math.ceil(heads / together) / share) * share  # of a sequence
    size = math.ceil(heads / pieces)
    parts: list[Part] = [()]
    if q.ndim > 2:
        parts = [(*row, slice(h, h + size)) for row in sequences for h in range(0, heads, size)]
    if many:
        parallel_blas(function, parts)
    else:
        for part in parts:
            function(part)


def _tiles_of(q: np.ndarray, k: np.ndarray, mask: np.ndarray) -> Callable[[Part], Iterable[Rows]]:
    """What gives a part its tiles: all the same ones where all have the same mask."""
    if math.prod(mask.shape[:-2]) > 1:
        return lambda part: _tiles(_mask_of(part, q, k, mask))
    mask = mask.reshape(mask.shape[-2:])
    tiles = [*_tiles(np.broadcast_to(mask, (q.shape[-2], k.shape[-2])))]
    return lambda _: tiles


def _mask_of(part: Part, q: np.ndarray, k: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The mask of one part: [T, S], or [heads or 1, T, S]."""
    mask = np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2]))[part]
    return mask[:1] if mask.ndim > 2 and mask.strides[0] == 0 else mask  # the same for all heads


def _tiles(mask: np.ndarray) -> Iterator[Rows]:
    """Rows of the table that see anything, and for each the tiles of the keys that they see.

    Of a causal mask only what lies along the diagonal has to be hidden, a small part of a tile.
    """
    T, S = mask.shape[-2:]
    others = tuple(range(mask.ndim - 1))
    for i in range(0, T, ROWS):
        rows, tiles = slice(i, min(i + ROWS, T)), []
        for j in range(0, S, KEYS):
            visible = mask[..., rows, j : j + KEYS]
            first, end = _span(visible.any(axis=others))
            visible = visible[..., first:end]
            partly = slice(*_span(~visible.all(axis=others)))
            if end:
                tiles.append((slice(j + first, j + end), partly, ~visible[..., partly]))
        if tiles:
            yield rows, tiles


def _span(marked: Any) -> tuple[int, int]:
    """From the first that is marked to behind the last; (0, 0) if none is."""
    places = np.flatnonzero(marked)
    return (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
