"""RMSNorm: LayerNorm without the mean, as Llama has it (article 9.2).

A vector is brought to length √d, whatever its direction; nothing is subtracted and nothing added.
"""

from __future__ import annotations

import numpy as np

from npgpt.ops.row_sum import sum_rows

Saved = tuple[np.ndarray, np.ndarray, np.ndarray]  # x_hat, rrms, weight


def rms_norm_forward(x: np.ndarray, weight: np.ndarray, *, eps: float) -> tuple[np.ndarray, Saved]:
    """Divide a vector by its root mean square and stretch it. Article 9.2.

        x̂ = x / √(mean(x²) + eps)           y = x̂ γ

    The mean runs over the last axis only: each token by itself.

    Args:
        x: [..., d].
        weight: γ [d].
        eps: keeps a vector of zeros from dividing by zero.

    Returns:
        y [..., d], NaN for a vector whose squares overflow, and what backward reads.
    """
    mean_square = np.vecdot(x, x)[..., None] / x.shape[-1]
    rrms = 1 / np.sqrt(mean_square + float(eps))  # [..., 1]
    rrms[rrms == 0] = np.nan  # the mean overflowed, and x̂ = 0 would hide it
    x_hat = x * rrms
    return x_hat * weight, (x_hat, rrms, weight)


def rms_norm_backward(dy: np.ndarray, saved: Saved) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of x and γ.

        dγ = Σ dy x̂             (over all tokens)

    For x write g = dy γ, the gradient that reaches x̂. x reaches x̂ by two of LayerNorm's three
    roads, itself and the size; with ∂rrms/∂x_i = -rrms² x̂_i / d

        dx = rrms (g - x̂ mean(g x̂))

    Args:
        dy: [..., d].

    Returns:
        dx [..., d], dweight [d].
    """
    x_hat, rrms, weight = saved
    dweight = sum_rows(dy * x_hat)
    g = dy * weight
    dx = g - x_hat * (g * x_hat).mean(axis=-1, keepdims=True)
    dx *= rrms
    return dx, dweight
