"""Grouped queries: several heads of queries share one head of keys and values (article 7.6).

H heads of queries ask, only H_kv heads are looked at and kept in the KV cache. Query head h belongs
to group h // G, G = H / H_kv. With G = 1 this is the attention of chapter 7, with H_kv = 1 it is
multi-query attention. Nothing is copied in the forward pass.
"""

from __future__ import annotations

import numpy as np


def group_queries_forward(q: np.ndarray, *, n_kv_head: int) -> tuple[np.ndarray, None]:
    """Put the heads of queries that share keys next to each other on an axis of their own.

        y[..., h, g, t, i] = q[..., h G + g, t, i]

    Args:
        q: [..., H, T, d_h], H divisible by H_kv.
        n_kv_head: H_kv.

    Returns:
        y [..., H_kv, G, T, d_h]; backward reads nothing.
    """
    *lead, H, T, d_h = q.shape
    return q.reshape(*lead, n_kv_head, H // n_kv_head, T, d_h), None


def group_queries_backward(dy: np.ndarray, saved: None) -> np.ndarray:  # noqa: ARG001
    """Gradient of q: every number moves back where it came from: `ungroup_queries_forward`.

    Args:
        dy: [..., H_kv, G, T, d_h].

    Returns:
        dq [..., H, T, d_h].
    """
    return ungroup_queries_forward(dy)[0]


def ungroup_queries_forward(x: np.ndarray) -> tuple[np.ndarray, int]:
    """Make one axis of all heads again.

        y[..., h G + g, t, i] = x[..., h, g, t, i]

    Args:
        x: [..., H_kv, G, T, d_h].

    Returns:
        y [..., H, T, d_h], and H_kv, which backward reads.
    """
    *lead, n_kv_head, G, T, d_h = x.shape
    return x.reshape(*lead, n_kv_head * G, T, d_h), n_kv_head


def ungroup_queries_backward(dy: np.ndarray, saved: int) -> np.ndarray:
    """Gradient of x: the numbers move back, so this is `group_queries_forward`.

    Args:
        dy: [..., H, T, d_h].

    Returns:
        dx [..., H_kv, G, T, d_h].
    """
    return group_queries_forward(dy, n_kv_head=saved)[0]


def share_heads_forward(x: np.ndarray, *, n_group: int) -> tuple[np.ndarray, None]:
    """Show each head of keys or values to all queries of its group.

        y[..., h, g, s, i] = x[..., h, s, i]

    Args:
        x: [..., H_kv, S, d_h].
        n_group: G.

    Returns:
        y [..., H_kv, G, S, d_h], a read-only view of x; backward reads nothing.
    """
    *lead, S, d_h = x.shape
    return np.broadcast_to(x[..., None, :, :], (*lead, n_group, S, d_h)), None


def share_heads_backward(dy: np.ndarray, saved: None) -> np.ndarray:  # noqa: ARG001
    """Gradient of x: what G heads have used gets the sum of their gradients.

        dx[..., h, s, i] = Σ_g dy[..., h, g, s, i]

    Args:
        dy: [..., H_kv, G, S, d_h].

    Returns:
        dx [..., H_kv, S, d_h].
    """
    return dy.sum(axis=-3)
