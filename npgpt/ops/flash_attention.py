"""Attention that never writes the [T, S] table: tile by tile, with a running softmax (article 7.6).

The same function of q, k, v as the six steps, up to rounding. The table of H · T · S scores is what
makes those slow and large: it leaves the processor's cache between one step and the next. Here a
tile of it is made, used and forgotten, and made again in the backward pass, so that what is kept
grows with T and not with T². Tiles in which nobody may look at anybody, the upper triangle of a
causal mask, are left out.

Leaves out: dropout of the weights, and the weights themselves; whoever wants to read the table
takes the six steps (`npgpt.layers.attention`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

ROWS, KEYS = 128, 512  # sizes of a tile; measured, but anything near is as good

# q, k, v, context, log Σ exp(scores) [..., T, 1], divisor, mask
Saved = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, float, np.ndarray]


def flash_attention_forward(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, *, divisor: float, mask: np.ndarray
) -> tuple[np.ndarray, Saved]:
    """Steps 2 to 6 of attention in one operation. Article 7.3, 7.6.

        context = softmax(q kᵀ / divisor + M) v,        M = 0 where mask, -∞ elsewhere

    Softmax divides by a sum over all keys, of which a tile has only some. So each row keeps the
    highest score m so far, and sum and context relative to it; a tile with a higher score m' first
    scales both down:

        sum     = exp(m - m') sum     + Σ_j exp(scores_j - m')
        context = exp(m - m') context + Σ_j exp(scores_j - m') v_j

    and the division comes last.

    Args:
        q: [..., T, d_h].
        k, v: [..., S, d_h]; v's width may differ.
        divisor: √d_h as a rule (7.4).
        mask: bool, broadcasts against [..., T, S]; True = may attend (7.5). A query that may attend
            to nothing gets zeros.

    Returns:
        context [..., T, d_h], and what backward reads.
    """
    # Laid out in memory as q is, so that the heads are merged without a copy.
    context = np.zeros_like(q, shape=(*q.shape[:-1], v.shape[-1]))
    log_total = np.zeros((*q.shape[:-1], 1), q.dtype)
    for text in np.ndindex(q.shape[:-3]):
        qs, ks, vs, out, log_out = q[text], k[text], v[text], context[text], log_total[text]
        for rows, tiles in _tiles(_mask_of(text, q, k, mask)):
            q_rows = qs[..., rows, :] / divisor  # once a query instead of once a score
            highest: np.ndarray | float = -math.inf
            total = mixed = np.zeros((), q.dtype)
            for keys, hidden in tiles:
                scores = _scores(q_rows, ks[..., keys, :], hidden)
                new_highest = np.maximum(highest, scores.max(axis=-1, keepdims=True))
                base = np.where(new_highest == -np.inf, q.dtype.type(0), new_highest)
                scores -= base  # a row without keys so far keeps its -∞; -∞ - -∞ would be NaN
                weights = np.exp(scores, out=scores)
                shrink = np.exp(highest - base)
                total = total * shrink + weights.sum(axis=-1, keepdims=True)
                mixed = mixed * shrink + weights @ vs[..., keys, :]
                highest = new_highest
            if tiles:
                total = np.where(total == 0, q.dtype.type(1), total)
                np.divide(mixed, total, out=out[..., rows, :])
                log_out[..., rows, :] = base + np.log(total)
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
    dq, dk, dv = (np.zeros_like(x) for x in (q, k, v))
    inner = np.vecdot(dcontext, context)[..., None]  # D [..., T, 1]
    for text in np.ndindex(q.shape[:-3]):
        qs, ks, vs, dout = q[text], k[text], v[text], dcontext[text]
        for rows, tiles in _tiles(_mask_of(text, q, k, mask)):
            q_rows, dout_rows = qs[..., rows, :] / divisor, dout[..., rows, :]
            for keys, hidden in tiles:
                scores = _scores(q_rows, ks[..., keys, :], hidden)
                scores -= log_total[text][..., rows, :]
                weights = np.exp(scores, out=scores)
                dv[text][..., keys, :] += np.swapaxes(weights, -1, -2) @ dout_rows
                dscores = dout_rows @ np.swapaxes(vs[..., keys, :], -1, -2)
                dscores -= inner[text][..., rows, :]
                dscores *= weights
                dq[text][..., rows, :] += dscores @ ks[..., keys, :]
                dk[text][..., keys, :] += np.swapaxes(dscores, -1, -2) @ q_rows
    dq /= divisor
    return dq, dk, dv


def _scores(q: np.ndarray, k: np.ndarray, hidden: np.ndarray | None) -> np.ndarray:
    """Those of one tile, -∞ where hidden. The same in both passes, to the last bit."""
    scores = q @ np.swapaxes(k, -1, -2)
    if hidden is not None:
        np.copyto(scores, -np.inf, where=hidden)
    return scores


def _mask_of(text: tuple[int, ...], q: np.ndarray, k: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The part of the mask for one text of the batch: [T, S], or [H or 1, T, S]."""
    T, S = q.shape[-2], k.shape[-2]
    mask = np.broadcast_to(mask, (*mask.shape[:-2], T, S))[(None,) * (q.ndim - mask.ndim)]
    return mask[tuple(i if n > 1 else 0 for i, n in zip(text, mask.shape, strict=False))]


def _tiles(
    mask: np.ndarray,
) -> Iterator[tuple[slice, list[tuple[slice, np.ndarray | None]]]]:
    """Rows of the table, and for each the keys that any of them sees and what to hide there."""
    T, S = mask.shape[-2:]
    for i in range(0, T, ROWS):
        rows, tiles = slice(i, min(i + ROWS, T)), []
        for j in range(0, S, KEYS):
            visible = mask[..., rows, j : j + KEYS]
            seen = np.flatnonzero(visible.any(axis=tuple(range(mask.ndim - 1))))
            if len(seen):
                first, end = seen[0], seen[-1] + 1
                visible = visible[..., first:end]
                hidden = None if visible.all() else ~visible
                tiles.append((slice(j + first, j + end), hidden))
        yield rows, tiles
