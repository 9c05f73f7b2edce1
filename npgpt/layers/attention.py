"""Attention, the only part where tokens exchange information (article chapter 7).

The six steps of 7.3: steps 2 to 6 are the numbered lines of `attention_forward`; step 1, which
also cuts the projections into heads (7.6), is in `self_attention.py` for GPT-2 and in
`multi_head.py` for models that keep its matrices apart. The backward passes walk the same lines in
reverse.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npgpt.layers.stations import Station, unobserved
from npgpt.ops import dropout, flash_attention, scores, softmax, weighted_sum
from npgpt.ops.dropout import dropout_backward, dropout_forward
from npgpt.ops.flash_attention import flash_attention_backward, flash_attention_forward
from npgpt.ops.mask import mask_backward, mask_forward
from npgpt.ops.scores import scale_backward, scale_forward, scores_backward, scores_forward
from npgpt.ops.softmax import softmax_backward, softmax_forward
from npgpt.ops.weighted_sum import weighted_sum_backward, weighted_sum_forward


class AttentionSaved(NamedTuple):
    """What `attention_backward` reads, step by step."""

    scores: scores.Saved
    scale: float
    mask: np.ndarray
    softmax: softmax.Saved
    dropout: dropout.Saved
    weighted_sum: weighted_sum.Saved


def attention_forward(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *,
    divisor: float,
    mask: np.ndarray,
    pdrop: float = 0.0,
    rng: np.random.Generator | None = None,
    station: Station = unobserved,
) -> tuple[np.ndarray, AttentionSaved]:
    """Let every query look at the keys and fetch from the values. Article 7.3 steps 2 to 6.

        context = softmax(q kᵀ / divisor + M) v,        M = 0 where mask, -∞ elsewhere

    Args:
        q: [..., T, d_h].
        k, v: [..., S, d_h].
        divisor: usually √d_h (7.4).
        mask: bool, broadcasts against [..., T, S]; True = may attend (7.5).
        pdrop, rng: dropout of the weights in training.
        station: shows `scores`, as softmax reads them, and `probs`, both [..., T, S].

    Returns:
        context [..., T, d_h], and what backward reads.
    """
    scores, saved_scores = scores_forward(q, k)  # 2 score          [..., T, S]
    scores, saved_scale = scale_forward(scores, divisor=divisor)  # 3 scale
    scores, saved_mask = mask_forward(scores, mask)  # 4 mask
    probs, (_, axis) = softmax_forward(station("scores", scores), axis=-1)  # 5 softmax
    probs = station("probs", probs)
    saved_softmax = probs, axis
    probs, saved_dropout = dropout_forward(probs, p=pdrop, rng=rng)
    context, saved_sum = weighted_sum_forward(probs, v)  # 6 weighted sum [..., T, d_h]
    return context, AttentionSaved(
        saved_scores, saved_scale, saved_mask, saved_softmax, saved_dropout, saved_sum
    )


def attention_backward(
    dcontext: np.ndarray, saved: AttentionSaved, station: Station = unobserved
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same steps in reverse: dq [..., T, d_h], dk and dv [..., S, d_h].

    Args:
        dcontext: [..., T, d_h].
    """
    dprobs, dv = weighted_sum_backward(dcontext, saved.weighted_sum)  # 6
    dprobs = station("probs", dropout_backward(dprobs, saved.dropout))
    dscores = station("scores", softmax_backward(dprobs, saved.softmax))  # 5
    dscores = mask_backward(dscores, saved.mask)  # 4
    dscores = scale_backward(dscores, saved.scale)  # 3
    dq, dk = scores_backward(dscores, saved.scores)  # 2
    return dq, dk, dv


Saved = AttentionSaved | flash_attention.Saved


def attend_forward(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *,
    divisor: float,
    mask: np.ndarray,
    pdrop: float = 0.0,
    rng: np.random.Generator | None = None,
    flash: bool = False,
    station: Station = unobserved,
) -> tuple[np.ndarray, Saved]:
    """Steps 2 to 6, as `attention_forward`, or as one operation if `flash`.

    The latter is faster and keeps no weight tables. The six steps are taken all the same where
    weights are dropped, and for a single query, whose table is a row.
    """
    if flash and q.shape[-2] > 1 and (pdrop == 0 or rng is None):
        return flash_attention_forward(q, k, v, divisor=divisor, mask=mask)
    return attention_forward(
        q, k, v, divisor=divisor, mask=mask, pdrop=pdrop, rng=rng, station=station
    )


def attend_backward(
    dcontext: np.ndarray, saved: Saved, station: Station = unobserved
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Backward of `attend_forward`: dq [..., T, d_h], dk and dv [..., S, d_h]."""
    if isinstance(saved, AttentionSaved):
        return attention_backward(dcontext, saved, station)
    return flash_attention_backward(dcontext, saved)


def attention_weights(saved: Saved) -> np.ndarray:
    """The weights [..., H, T, S]: row i says how much token i looks at each token.

    Raises AttributeError after a pass with `flash`, which has none.
    """
    if not isinstance(saved, AttentionSaved):
        raise AttributeError("a pass with flash=True keeps no weight tables; run it without.")
    return saved.softmax[0]
