"""Scores: how well each query matches each key, and their scale (article 7.3, 7.4)."""

from __future__ import annotations

import numpy as np

Saved = tuple[np.ndarray, np.ndarray]  # q, k


def scores_forward(q: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, Saved]:
    """Inner product of every query with every key. Article 7.3 step 2.

        scores[..., i, j] = q[..., i, :] · k[..., j, :]         S = Q Kᵀ

    Args:
        q: [..., T, d_h].
        k: [..., S, d_h].

    Returns:
        scores [..., T, S], and what backward reads.
    """
    return q @ np.swapaxes(k, -1, -2), (q, k)


def scores_backward(dscores: np.ndarray, saved: Saved) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of q and k.

    q_i meets every k_j once, and the product's gradient is the other factor:

        dq[i] = Σ_j dscores[i, j] k[j]          dq = dS K
        dk[j] = Σ_i dscores[i, j] q[i]          dk = dSᵀ Q

    Args:
        dscores: [..., T, S].

    Returns:
        dq [..., T, d_h], dk [..., S, d_h].
    """
    q, k = saved
    return dscores @ k, np.swapaxes(dscores, -1, -2) @ q


def scale_forward(scores: np.ndarray, *, divisor: float) -> tuple[np.ndarray, float]:
    """Divide the scores, usually by √d_h. Article 7.3 step 3; why: 7.4.

        y = scores / divisor

    A sum of d_h independent products has standard deviation √d_h; undivided, it would saturate the
    softmax.

    Args:
        scores: [..., T, S].
        divisor: any kind of number; it does not change the dtype.

    Returns:
        y [..., T, S], and the divisor, which backward reads.
    """
    divisor = float(divisor)  # an np.float64 would make float64 of float32
    return scores / divisor, divisor


def scale_backward(dy: np.ndarray, saved: float) -> np.ndarray:
    """Gradient of the scores: dscores = dy / divisor.

    Args:
        dy: [..., T, S].

    Returns:
        dscores [..., T, S].
    """
    return dy / saved
