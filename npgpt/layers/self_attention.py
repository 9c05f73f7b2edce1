"""Multi-head self-attention as GPT-2 stores it: one matrix for queries, keys and values.

Matrices that are stored apart, and queries that look at another text, are in `multi_head.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from npgpt.layers.attention import Saved, attend_backward, attend_forward, attention_weights
from npgpt.layers.stations import Station, unobserved
from npgpt.ops.heads import (
    merge_heads_backward,
    merge_heads_forward,
    split_heads_backward,
    split_heads_forward,
)
from npgpt.ops.linear import Saved as LinearSaved
from npgpt.ops.linear import linear_backward, linear_forward


class SelfAttentionSaved(NamedTuple):
    """What `self_attention_backward` reads."""

    c_attn: LinearSaved
    heads: Saved
    n_head: int
    c_proj: LinearSaved

    @property
    def probs(self) -> np.ndarray:
        """The weight tables [..., H, T, S]; see `attention_weights`."""
        return attention_weights(self.heads)


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
    flash: bool = False,
    station: Station = unobserved,
) -> tuple[np.ndarray, SelfAttentionSaved]:
    """Multi-head self-attention: H heads do the six steps side by side. Article 7.6.

        Q, K, V = x W_Q + b_Q, x W_K + b_K, x W_V + b_V         c_attn = [W_Q | W_K | W_V]
        y = [head_1 | … | head_H] W_O + b_O                     c_proj = W_O

    Args:
        x: [..., T, d].
        c_attn_weight, c_attn_bias: [d, 3 d], [3 d].
        c_proj_weight, c_proj_bias: [d, d], [d].
        n_head: H.
        divisor, mask, pdrop, rng, flash: see `attend_forward`.
        extend_kv: puts new keys and values [..., H, T, d_h] behind those of earlier tokens and
            returns all of them [..., H, S, d_h]; None in training and without a cache.
        station: shows `q`, `k`, `v` [..., H, T, d_h], then as `attention_forward`, and `context`
            [..., T, d], the heads side by side.

    Returns:
        y [..., T, d], and what backward reads.
    """
    qkv, saved_c_attn = linear_forward(x, c_attn_weight, c_attn_bias)  # 1 project [..., T, 3 d]
    d = x.shape[-1]
    parts = (qkv[..., :d], qkv[..., d : 2 * d], qkv[..., 2 * d :])
    q, k, v = (
        station(name, split_heads_forward(part, n_head=n_head)[0])  # [..., H, T, d_h]
        for name, part in zip("qkv", parts, strict=True)
    )
    if extend_kv is not None:
        k, v = extend_kv(k, v)
    context, saved_heads = attend_forward(
        q, k, v, divisor=divisor, mask=mask, pdrop=pdrop, rng=rng, flash=flash, station=station
    )  # 2 … 6, every head on its own [..., H, T, d_h]
    merged = station("context", merge_heads_forward(context)[0])  # [..., T, d]
    y, saved_c_proj = linear_forward(merged, c_proj_weight, c_proj_bias)
    return y, SelfAttentionSaved(saved_c_attn, saved_heads, n_head, saved_c_proj)


def self_attention_backward(
    dy: np.ndarray, saved: SelfAttentionSaved, station: Station = unobserved
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of x, c_attn (weight, bias) and c_proj (weight, bias).

    Args:
        dy: [..., T, d].

    Returns:
        dx [..., T, d], then each parameter's gradient in the parameter's shape.
    """
    dmerged, dc_proj_weight, dc_proj_bias = linear_backward(dy, saved.c_proj)
    dcontext = merge_heads_backward(station("context", dmerged), saved.n_head)
    dparts = attend_backward(dcontext, saved.heads, station)
    dqkv = [
        split_heads_backward(station(name, dpart), None)
        for name, dpart in zip("qkv", dparts, strict=True)
    ]
    dx, dc_attn_weight, dc_attn_bias = linear_backward(np.concatenate(dqkv, axis=-1), saved.c_attn)
    return dx, dc_attn_weight, dc_attn_bias, dc_proj_weight, dc_proj_bias
