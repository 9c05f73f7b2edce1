"""Self-attention as Llama and its relatives have it: grouped queries, rotary positions (7.6, 6.2).

Qwen2 adds biases, Qwen3 a norm of each query and key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from npgpt.layers.attention import Saved, attend_backward, attend_forward, attention_weights
from npgpt.layers.projection import ProjectionSaved, projection_backward, projection_forward
from npgpt.layers.stations import Station, unobserved
from npgpt.ops import rms_norm, rope
from npgpt.ops.heads import (
    merge_heads_backward,
    merge_heads_forward,
    split_heads_backward,
    split_heads_forward,
)
from npgpt.ops.rms_norm import rms_norm_backward, rms_norm_forward
from npgpt.ops.rope import rope_backward, rope_forward
from npgpt.ops.shared_heads import (
    group_queries_backward,
    group_queries_forward,
    share_heads_backward,
    share_heads_forward,
    ungroup_queries_backward,
    ungroup_queries_forward,
)

Maybe = np.ndarray | None
Gradients = tuple[  # of x, W_q, W_k, W_v, W_o; of b_q, b_k, b_v, b_o, g_q, g_k
    np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray,
    Maybe, Maybe, Maybe, Maybe, Maybe, Maybe,
]  # fmt: skip


class GroupedAttentionSaved(NamedTuple):
    """What `grouped_attention_backward` reads."""

    projections: list[ProjectionSaved]  # of q, k, v
    norms: list[rms_norm.Saved | None]  # of q, k
    cos_sin: rope.Saved
    heads: Saved
    n_head: int
    n_kv_head: int
    out: ProjectionSaved

    @property
    def probs(self) -> np.ndarray:
        """The weight tables [..., H, T, S]; see `attention_weights`."""
        return ungroup_queries_forward(attention_weights(self.heads))[0]


def grouped_attention_forward(
    x: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    W_v: np.ndarray,
    W_o: np.ndarray,
    b_q: Maybe = None,
    b_k: Maybe = None,
    b_v: Maybe = None,
    b_o: Maybe = None,
    g_q: Maybe = None,
    g_k: Maybe = None,
    *,
    n_head: int,
    n_kv_head: int,
    cos_sin: tuple[np.ndarray, np.ndarray],
    divisor: float,
    mask: np.ndarray,
    eps: float = 1e-6,
    extend_kv: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None,
    pdrop: float = 0.0,
    rng: np.random.Generator | None = None,
    flash: bool = False,
    station: Station = unobserved,
) -> tuple[np.ndarray, GroupedAttentionSaved]:
    """H heads of queries look at H_kv heads of keys and values, G = H / H_kv at each. Article 7.6.

        Q, K, V = R x W_Q, R x W_K, x W_V           R turns by the position (6.2)
        y = [head_1 | … | head_H] W_O

    Each product gets its bias where there is one; with gains, Q = R RMSNorm(x W_Q), and so K.

    Args:
        x: [..., T, d].
        W_q, W_k, W_v, W_o: [d, H d_h], [d, H_kv d_h], [d, H_kv d_h], [H d_h, d].
        b_q, b_k, b_v, b_o: biases of these, or None.
        g_q, g_k: gains [d_h] of the norms within each head, or None for no norm.
        n_head, n_kv_head: H, a multiple of H_kv.
        cos_sin: of the positions' angles, broadcast against [..., H, T, d_h/2]; see
            `npgpt.ops.rope.rotation`.
        mask: bool [T, S] or [..., 1, T, S], the same for all heads; True = may attend.
        eps: of the norms, see `rms_norm_forward`.
        extend_kv: puts new keys, turned already, and values [..., H_kv, T, d_h] behind those of
            earlier tokens and returns all [..., H_kv, S, d_h]; None in training, without a cache.
        divisor, pdrop, rng, flash: see `attend_forward`.
        station: shows `q`, `k`, both turned, and `v` [..., H or H_kv, T, d_h], then as
            `attention_forward`, with all H heads on one axis, and `context` [..., T, H d_h].

    Returns:
        y [..., T, d], and what backward reads.
    """
    cos, sin = cos_sin
    weights = (W_q, b_q), (W_k, b_k), (W_v, b_v)
    projected = [projection_forward(x, *pair) for pair in weights]  # 1 project
    q, _ = split_heads_forward(projected[0][0], n_head=n_head)  # [..., H, T, d_h]
    k, v = (split_heads_forward(part, n_head=n_kv_head)[0] for part, _ in projected[1:])
    q, saved_norm_q = _normed(q, g_q, eps)
    k, saved_norm_k = _normed(k, g_k, eps)
    q, saved_cos_sin = rope_forward(q, cos=cos, sin=sin)
    k, _ = rope_forward(k, cos=cos, sin=sin)  # [..., H_kv, T, d_h]
    q, k, v = station("q", q), station("k", k), station("v", v)
    if extend_kv is not None:
        k, v = extend_kv(k, v)

    q, _ = group_queries_forward(q, n_kv_head=n_kv_head)  # [..., H_kv, G, T, d_h]
    k, v = (share_heads_forward(part, n_group=n_head // n_kv_head)[0] for part in (k, v))
    context, saved_heads = attend_forward(
        q,
        k,
        v,
        divisor=divisor,
        mask=mask[..., None, :, :],
        pdrop=pdrop,
        rng=rng,
        flash=flash,
        station=_of_all_heads(station, n_kv_head),
    )  # 2 … 6
    context, _ = ungroup_queries_forward(context)  # [..., H, T, d_h]
    merged = station("context", merge_heads_forward(context)[0])  # [..., T, H d_h]
    y, saved_out = projection_forward(merged, W_o, b_o)
    return y, GroupedAttentionSaved(
        [saved for _, saved in projected],
        [saved_norm_q, saved_norm_k],
        saved_cos_sin,
        saved_heads,
        n_head,
        n_kv_head,
        saved_out,
    )


def grouped_attention_backward(
    dy: np.ndarray, saved: GroupedAttentionSaved, station: Station = unobserved
) -> Gradients:
    """Gradients of x and of the parameters in forward's order, None for those not there.

    x gets the sum of its three ways.

    Args:
        dy: [..., T, d].
    """
    dmerged, dW_o, db_o = projection_backward(dy, saved.out)
    dcontext = merge_heads_backward(station("context", dmerged), saved.n_head)  # [..., H, T, d_h]
    dcontext = ungroup_queries_backward(dcontext, saved.n_kv_head)
    in_heads = _of_all_heads(station, saved.n_kv_head)
    dq, dk, dv = attend_backward(dcontext, saved.heads, in_heads)  # [..., H_kv, G, …]
    dq = rope_backward(station("q", group_queries_backward(dq, None)), saved.cos_sin)
    dk = rope_backward(station("k", share_heads_backward(dk, None)), saved.cos_sin)
    dv = station("v", share_heads_backward(dv, None))
    dq, dg_q = _normed_back(dq, saved.norms[0])
    dk, dg_k = _normed_back(dk, saved.norms[1])
    parts = zip((dq, dk, dv), saved.projections, strict=True)
    back = [projection_backward(split_heads_backward(dpart, None), kept) for dpart, kept in parts]
    (dx_q, dW_q, db_q), (dx_k, dW_k, db_k), (dx_v, dW_v, db_v) = back
    return (
        *(dx_q + dx_k + dx_v, dW_q, dW_k, dW_v, dW_o),
        *(db_q, db_k, db_v, db_o),
        *(dg_q, dg_k),
    )


def _normed(
    heads: np.ndarray, gain: np.ndarray | None, eps: float
) -> tuple[np.ndarray, rms_norm.Saved | None]:
    """RMSNorm of each head [..., T, d_h], or nothing without a gain."""
    return (heads, None) if gain is None else rms_norm_forward(heads, gain, eps=eps)


def _normed_back(
    dheads: np.ndarray, saved: rms_norm.Saved | None
) -> tuple[np.ndarray, np.ndarray | None]:
    return (dheads, None) if saved is None else rms_norm_backward(dheads, saved)


def _of_all_heads(station: Station, n_kv_head: int) -> Station:
    """`station` for arrays [..., H_kv, G, T, S], which it shows as [..., H, T, S]."""
    if station is unobserved:
        return unobserved

    def shown(name: str, array: np.ndarray) -> np.ndarray:
        array = station(name, ungroup_queries_forward(array)[0])
        return group_queries_forward(array, n_kv_head=n_kv_head)[0]

    return shown
