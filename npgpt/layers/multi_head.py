"""Multi-head attention whose queries may look at another text than their own (article 7.6, 4).

The keys and values come in by themselves, so the same two functions serve a token that looks at its
own text, a decoder that looks at what the encoder read, and a cache that keeps them:

    self-attention:     k, v = keys_values(x);        y = query_attention(x, k, v)
    cross-attention:    k, v = keys_values(memory);   y = query_attention(x, k, v)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npgpt.layers.attention import Saved, attend_backward, attend_forward, attention_weights
from npgpt.layers.projection import ProjectionSaved, projection_backward, projection_forward
from npgpt.layers.stations import Station, unobserved
from npgpt.ops.heads import (
    merge_heads_backward,
    merge_heads_forward,
    split_heads_backward,
    split_heads_forward,
)
from npgpt.ops.linear import Saved as LinearSaved
from npgpt.ops.linear import linear_backward, linear_forward

Maybe = np.ndarray | None  # a bias that GPT-Neo does not have, and its gradient
KeysValuesSaved = tuple[ProjectionSaved, ProjectionSaved]


def keys_values_forward(
    memory: np.ndarray,
    W_k: np.ndarray,
    b_k: Maybe,
    W_v: np.ndarray,
    b_v: Maybe,
    *,
    n_head: int,
    station: Station = unobserved,
) -> tuple[tuple[np.ndarray, np.ndarray], KeysValuesSaved]:
    """What can be looked at: a key and a value of every token, in every head. Article 7.3 step 1.

        K, V = memory W_K + b_K, memory W_V + b_V

    Args:
        memory: the text that is looked at [..., S, d].
        W_k, b_k, W_v, b_v: [d, d], [d] or None, [d, d], [d] or None.
        n_head: H.
        station: shows `k` and `v`.

    Returns:
        (k, v), each [..., H, S, d_h], and what backward reads.
    """
    k, saved_k = projection_forward(memory, W_k, b_k)
    v, saved_v = projection_forward(memory, W_v, b_v)
    k, v = (split_heads_forward(part, n_head=n_head)[0] for part in (k, v))
    return (station("k", k), station("v", v)), (saved_k, saved_v)


def keys_values_backward(
    dk: np.ndarray, dv: np.ndarray, saved: KeysValuesSaved, station: Station = unobserved
) -> tuple[np.ndarray, np.ndarray, Maybe, np.ndarray, Maybe]:
    """Gradients of memory, W_k, b_k, W_v and b_v; memory gets the sum of both its ways.

    Args:
        dk, dv: [..., H, S, d_h].
    """
    saved_k, saved_v = saved
    dk, dv = station("k", dk), station("v", dv)
    dmemory, dW_k, db_k = projection_backward(split_heads_backward(dk, None), saved_k)
    through_v, dW_v, db_v = projection_backward(split_heads_backward(dv, None), saved_v)
    return dmemory + through_v, dW_k, db_k, dW_v, db_v


class QueryAttentionSaved(NamedTuple):
    """What `query_attention_backward` reads."""

    q: ProjectionSaved
    heads: Saved
    n_head: int
    out: LinearSaved

    @property
    def probs(self) -> np.ndarray:
        """The weight tables [..., H, T, S]; see `attention_weights`."""
        return attention_weights(self.heads)


def query_attention_forward(
    x: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    W_q: np.ndarray,
    b_q: Maybe,
    W_o: np.ndarray,
    b_o: np.ndarray,
    *,
    n_head: int,
    divisor: float,
    mask: np.ndarray,
    pdrop: float = 0.0,
    rng: np.random.Generator | None = None,
    flash: bool = False,
    station: Station = unobserved,
) -> tuple[np.ndarray, QueryAttentionSaved]:
    """H heads look at k and fetch from v, each in its own way. Article 7.6.

        Q = x W_Q + b_Q
        y = [head_1 | … | head_H] W_O + b_O

    Args:
        x: [..., T, d].
        k, v: [..., H, S, d_h], see `keys_values_forward`.
        W_q, b_q, W_o, b_o: [d, d], [d] or None, [d, d], [d].
        n_head: H.
        divisor, mask, pdrop, rng, flash: see `attend_forward`.
        station: shows `q` [..., H, T, d_h], then as `attention_forward`, and `context`
            [..., T, d], the heads side by side.

    Returns:
        y [..., T, d], and what backward reads.
    """
    q, saved_q = projection_forward(x, W_q, b_q)
    q = station("q", split_heads_forward(q, n_head=n_head)[0])  # [..., T, d] -> [..., H, T, d_h]
    context, saved_heads = attend_forward(
        q, k, v, divisor=divisor, mask=mask, pdrop=pdrop, rng=rng, flash=flash, station=station
    )
    merged = station("context", merge_heads_forward(context)[0])  # [..., T, d]
    y, saved_out = linear_forward(merged, W_o, b_o)
    return y, QueryAttentionSaved(saved_q, saved_heads, n_head, saved_out)


def query_attention_backward(
    dy: np.ndarray, saved: QueryAttentionSaved, station: Station = unobserved
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Maybe, np.ndarray, np.ndarray]:
    """Gradients of x, k, v, W_q, b_q, W_o and b_o.

    Args:
        dy: [..., T, d].
    """
    dmerged, dW_o, db_o = linear_backward(dy, saved.out)
    dcontext = merge_heads_backward(station("context", dmerged), saved.n_head)
    dq, dk, dv = attend_backward(dcontext, saved.heads, station)
    dx, dW_q, db_q = projection_backward(split_heads_backward(station("q", dq), None), saved.q)
    return dx, dk, dv, dW_q, db_q, dW_o, db_o
