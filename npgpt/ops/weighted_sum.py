"""Weighted sum of the values: what attention passes on (article 7.3 step 6)."""

from __future__ import annotations

import numpy as np

Saved = tuple[np.ndarray, np.ndarray]  # probs, v


def weighted_sum_forward(probs: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, Saved]:
    """Mix the value vectors by the weights of each query. Article 7.3 step 6.

        context[..., i, :] = Σ_j probs[..., i, j] v[..., j, :]          out = P V

    Args:
        probs: [..., T, S].
        v: [..., S, d_h].

    Returns:
        context [..., T, d_h], and what backward reads.
    """
    return probs @ v, (probs, v)


def weighted_sum_backward(dcontext: np.ndarray, saved: Saved) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the weights and of the values.

        dprobs[i, j] = dcontext[i] · v[j]               dP = dcontext Vᵀ
        dv[j] = Σ_i probs[i, j] dcontext[i]             dV = Pᵀ dcontext

    Args:
        dcontext: [..., T, d_h].

    Returns:
        dprobs [..., T, S], dv [..., S, d_h].
    """
    probs, v = saved
    return dcontext @ np.swapaxes(v, -1, -2), np.swapaxes(probs, -1, -2) @ dcontext
