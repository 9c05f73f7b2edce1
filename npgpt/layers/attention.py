"""Attention, the only part where tokens exchange information (article chapter 7).

The six steps of 7.3 are the six numbered lines below: step 1 in `self_attention_forward`, which
also cuts the projections into heads (7.6), steps 2 to 6 in `attention_forward`. The backward passes
walk the same lines in reverse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from npgpt.ops import dropout, scores, softmax, weighted_sum
from npgpt.ops.dropout import dropout_backward, dropout_forward
from npgpt.ops.heads import (
    merge_heads_backward,
    merge_heads_forward,
    split_heads_backward,
    split_heads_forward,
)
from npgpt.ops.linear import Saved as LinearSaved
from npgpt.ops.linear import linear_backward, linear_forward
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
) -> tuple[np.ndarray, AttentionSaved]:
    """Let every query look at the keys and fetch from the values. Article 7.3 steps 2 to 6.

        context = softmax(q kᵀ / divisor + M) v,        M = 0 where mask, -∞ elsewhere

    Args:
        q: [..., T, d_h].
        k, v: [..., S, d_h].
        divisor: √d_h as a rule (7.4).
        mask: bool, broadcasts against [..., T, S]; True = may attend (7.5).
        pdrop, rng: dropout of the weights in training.

    Returns:
        context [..., T, d_h], and what backward reads.
    """
    scores, saved_scores = scores_forward(q, k)  # 2 score          [..., T, S]
    scores, saved_scale = scale_forward(scores, divisor=divisor)  # 3 scale
    scores, saved_mask = mask_forward(scores, mask)  # 4 mask
    probs, saved_softmax = softmax_forward(scores, axis=-1)  # 5 softmax
    probs, saved_dropout = dropout_forward(probs, p=pdrop, rng=rng)
    context, saved_sum = weighted_sum_forward(probs, v)  # 6 weighted sum [..., T, d_h]
    return context, AttentionSaved(
        saved_scores, saved_scale, saved_mask, saved_softmax, saved_dropout, saved_sum
    )


def attention_backward(
    dcontext: np.ndarray, saved: AttentionSaved
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same steps in reverse: dq [..., T, d_h], dk and dv [..., S, d_h].

    Args:
        dcontext: [..., T, d_h].
    """
    dprobs, dv = weighted_sum_backward(dcontext, saved.weighted_sum)  # 6
    dprobs = dropout_backward(dprobs, saved.dropout)
    dscores = softmax_backward(dprobs, saved.softmax)  # 5
    dscores = mask_backward(dscores, saved.mask)  # 4
    dscores = scale_backward(dscores, saved.scale)  # 3
    dq, dk = scores_backward(dscores, saved.scores)  # 2
    return dq, dk, dv


class SelfAttentionSaved(NamedTuple):
    """What `self_attention_backward` reads."""

    c_attn: LinearSaved
    heads: AttentionSaved
    n_head: int
    c_proj: LinearSaved

    @property
    def probs(self) -> np.ndarray:
        """The weight tables [..., H, T, S]: row i says how much token i looks at each token."""
        return self.heads.softmax[0]


def self_attention_forward(
    x: np.ndarray,
    c_attn_weight: np.ndarray,
    c_attn_bias: np.ndarray,
    c_proj_weight: np.ndarray,
    c_proj_bias: np.ndarray,
    *,
    n_head: int,
    divisor: float,
    mask: np.ndarray,
    extend_kv: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None,
    pdrop: float = 0.0,
    rng: np.random.Generator | None = None,
) -> tuple[np.ndarray, SelfAttentionSaved]:
    """Multi-head self-attention: H heads do the six steps side by side. Article 7.6.

        Q, K, V = x W_Q + b_Q, x W_K + b_K, x W_V + b_V         c_attn = [W_Q | W_K | W_V]
        y = [head_1 | … | head_H] W_O + b_O                     c_proj = W_O

    Args:
        x: [..., T, d].
        c_attn_weight, c_attn_bias: [d, 3 d], [3 d].
        c_proj_weight, c_proj_bias: [d, d], [d].
        n_head: H.
        divisor, mask, pdrop, rng: see `attention_forward`.
        extend_kv: puts new keys and values [..., H, T, d_h] behind those of earlier tokens and
            returns all of them [..., H, S, d_h]; None in training and without a cache.

    Returns:
        y [..., T, d], and what backward reads.
    """
    qkv, saved_c_attn = linear_forward(x, c_attn_weight, c_attn_bias)  # 1 project [..., T, 3 d]
    q, k, v = (split_heads_forward(part, n_head=n_head)[0] for part in np.split(qkv, 3, axis=-1))
    if extend_kv is not None:
        k, v = extend_kv(k, v)
    context, saved_heads = attention_forward(
        q, k, v, divisor=divisor, mask=mask, pdrop=pdrop, rng=rng
    )  # 2 … 6, every head on its own [..., H, T, d_h]
    merged, _ = merge_heads_forward(context)  # [..., T, d]
    y, saved_c_proj = linear_forward(merged, c_proj_weight, c_proj_bias)
    return y, SelfAttentionSaved(saved_c_attn, saved_heads, n_head, saved_c_proj)


def self_attention_backward(
    dy: np.ndarray, saved: SelfAttentionSaved
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of x, c_attn (weight, bias) and c_proj (weight, bias).

    Args:
        dy: [..., T, d].

    Returns:
        dx [..., T, d], then each parameter's gradient in the parameter's shape.
    """
    dmerged, dc_proj_weight, dc_proj_bias = linear_backward(dy, saved.c_proj)
    dcontext = merge_heads_backward(dmerged, saved.n_head)
    dqkv = [
        split_heads_backward(dpart, None) for dpart in attention_backward(dcontext, saved.heads)
    ]
    dx, dc_attn_weight, dc_attn_bias = linear_backward(np.concatenate(dqkv, axis=-1), saved.c_attn)
    return dx, dc_attn_weight, dc_attn_bias, dc_proj_weight, dc_proj_bias
