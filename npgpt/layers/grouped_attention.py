"""Self-attention as Llama has it: grouped queries, rotary positions, no biases (7.6, 6.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from npgpt.layers.attention import Saved, attend_backward, attend_forward, attention_weights
from npgpt.layers.stations import Station, unobserved
from npgpt.ops import rope
from npgpt.ops.heads import (
    merge_heads_backward,
    merge_heads_forward,
    split_heads_backward,
    split_heads_forward,
)
from npgpt.ops.project import Saved as ProjectSaved
from npgpt.ops.project import project_backward, project_forward
from npgpt.ops.rope import rope_backward, rope_forward
from npgpt.ops.shared_heads import (
    group_queries_backward,
    group_queries_forward,
    share_heads_backward,
    share_heads_forward,
    ungroup_queries_backward,
    ungroup_queries_forward,
)


class GroupedAttentionSaved(NamedTuple):
    """What `grouped_attention_backward` reads."""

    projections: list[ProjectSaved]  # of q, k, v
    cos_sin: rope.Saved
    heads: Saved
    n_head: int
    n_kv_head: int
    out: ProjectSaved

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
    *,
    n_head: int,
    n_kv_head: int,
    cos_sin: tuple[np.ndarray, np.ndarray],
    divisor: float,
    mask: np.ndarray,
    extend_kv: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None,
    pdrop: float = 0.0,
    rng: np.random.Generator | None = None,
    flash: bool = False,
    station: Station = unobserved,
) -> tuple[np.ndarray, GroupedAttentionSaved]:
    """H heads of queries look at H_kv heads of keys and values, G = H / H_kv at each. Article 7.6.

        Q, K, V = R x W_Q, R x W_K, x W_V           R turns by the position (6.2)
        y = [head_1 | … | head_H] W_O

    Args:
        x: [..., T, d].
        W_q, W_k, W_v, W_o: [d, H d_h], [d, H_kv d_h], [d, H_kv d_h], [H d_h, d].
        n_head, n_kv_head: H, a multiple of H_kv.
        cos_sin: of the positions' angles, broadcast against [..., H, T, d_h/2]; see
            `npgpt.ops.rope.rotation`.
        mask: bool [T, S] or [..., 1, T, S], the same for all heads; True = may attend.
        extend_kv: puts new keys, turned already, and values [..., H_kv, T, d_h] behind those of
            earlier tokens and returns all [..., H_kv, S, d_h]; None in training, without a cache.
        divisor, pdrop, rng, flash: see `attend_forward`.
        station: shows `q`, `k`, both turned, and `v` [..., H or H_kv, T, d_h], then as
            `attention_forward`, with all H heads on one axis, and `context` [..., T, H d_h].

    Returns:
        y [..., T, d], and what backward reads.
    """
    cos, sin = cos_sin
    projected = [project_forward(x, W) for W in (W_q, W_k, W_v)]  # 1 project
    q, _ = split_heads_forward(projected[0][0], n_head=n_head)  # [..., H, T, d_h]
    k, v = (split_heads_forward(part, n_head=n_kv_head)[0] for part, _ in projected[1:])
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
    y, saved_out = project_forward(merged, W_o)
    saved_projections = [saved for _, saved in projected]
    return y, GroupedAttentionSaved(
        saved_projections, saved_cos_sin, saved_heads, n_head, n_kv_head, saved_out
    )


def grouped_attention_backward(
    dy: np.ndarray, saved: GroupedAttentionSaved, station: Station = unobserved
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of x, W_q, W_k, W_v and W_o; x gets the sum of its three ways.

    Args:
        dy: [..., T, d].
    """
    dmerged, dW_o = project_backward(dy, saved.out)
    dcontext = merge_heads_backward(station("context", dmerged), saved.n_head)  # [..., H, T, d_h]
    dcontext = ungroup_queries_backward(dcontext, saved.n_kv_head)
    in_heads = _of_all_heads(station, saved.n_kv_head)
    dq, dk, dv = attend_backward(dcontext, saved.heads, in_heads)  # [..., H_kv, G, …]
    dq = rope_backward(station("q", group_queries_backward(dq, None)), saved.cos_sin)
    dk = rope_backward(station("k", share_heads_backward(dk, None)), saved.cos_sin)
    dv = station("v", share_heads_backward(dv, None))
    parts = zip((dq, dk, dv), saved.projections, strict=True)
    back = [project_backward(split_heads_backward(dpart, None), kept) for dpart, kept in parts]
    (dx_q, dW_q), (dx_k, dW_k), (dx_v, dW_v) = back
    return dx_q + dx_k + dx_v, dW_q, dW_k, dW_v, dW_o


def _of_all_heads(station: Station, n_kv_head: int) -> Station:
    """`station` for arrays [..., H_kv, G, T, S], which it shows as [..., H, T, S]."""
    if station is unobserved:
        return unobserved

    def shown(name: str, array: np.ndarray) -> np.ndarray:
        array = station(name, ungroup_queries_forward(array)[0])
        return group_queries_forward(array, n_kv_head=n_kv_head)[0]

    return shown
