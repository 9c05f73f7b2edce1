"""Softmax: turn scores into weights that are positive and sum to 1 (article 7.3 step 5, 7.4)."""

from __future__ import annotations

import numpy as np

Saved = tuple[np.ndarray, int]  # probs, axis


def softmax_forward(x: np.ndarray, *, axis: int) -> tuple[np.ndarray, Saved]:
    """Exponentiate and normalise along one axis. Article 7.3 step 5.

        probs_i = exp(x_i) / Σ_j exp(x_j)

    The maximum is subtracted first; it cancels in the quotient and keeps exp from overflowing. -∞
    gives weight 0 exactly, and a row of nothing but -∞ (a query that may attend to nothing) gives
    zeros.

    Args:
        x: any shape; -∞ where masked.
        axis: the axis that sums to 1.

    Returns:
        probs, like x, and what backward reads.
    """
    lowest = np.finfo(x.dtype).min  # in a row of nothing but -∞, as -∞ - -∞ would be NaN
    probs = x - x.max(axis=axis, keepdims=True, initial=lowest)
    np.exp(probs, out=probs)
    total = probs.sum(axis=axis, keepdims=True)
    probs /= np.maximum(total, 1)  # the maximum alone adds exp(0); 0 in a row of -∞
    return probs, (probs, axis)


def softmax_backward(dprobs: np.ndarray, saved: Saved) -> np.ndarray:
    """Gradient of x.

    Every output depends on every input of its row, ∂p_i/∂x_j = p_i (δ_ij - p_j), so

        dx_j = Σ_i dp_i p_i (δ_ij - p_j) = p_j (dp_j - Σ_i dp_i p_i)

    The inner sum is one number a row: the mean of dp under the weights p. With two scores this is
    the article's p (1 - p) (7.4).

    Args:
        dprobs: like probs.

    Returns:
        dx, like probs.
    """
    probs, axis = saved
    dx = dprobs * probs
    mean = dx.sum(axis=axis, keepdims=True)
    dx -= mean * probs
    return dx


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities along the last axis, exact where a probability rounds to 0.

        log p_i = (x_i - max x) - log Σ_j exp(x_j - max x)

    For comparing probabilities and adding up their logarithms. It has no backward, because the loss
    does not go through it (see `cross_entropy`).

    Args:
        x: [..., V]; -∞ where closed, but not everywhere in a row.

    Returns:
        log p, like x.
    """
    shifted = x - x.max(axis=-1, keepdims=True)
    log_probs: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return log_probs


def check_logits(logits: np.ndarray) -> None:
    """Raise ValueError if one is NaN or +∞, which make no probabilities; -∞ makes a 0."""
    if not logits.max() < np.inf:
        raise ValueError(
            "the logits are not finite: the weights are broken; get another copy of the model."
        )
