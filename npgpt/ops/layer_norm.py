"""LayerNorm: bring every token's vector to the same scale (article 9.2)."""

from __future__ import annotations

import numpy as np

from npgpt.ops.row_sum import sum_rows

Saved = tuple[np.ndarray, np.ndarray, np.ndarray]  # x_hat, rstd, weight


def layer_norm_forward(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, *, eps: float
) -> tuple[np.ndarray, Saved]:
    """Subtract a vector's mean, divide by its standard deviation, stretch and shift. Article 9.2.

        x̂ = (x - mean) / √(variance + eps)          y = x̂ γ + β

    Mean and variance (divided by d, not d - 1) run over the last axis only: each token by itself,
    never across tokens or batch.

    Args:
        x: [..., d].
        weight: γ [d].
        bias: β [d].
        eps: keeps a constant vector from dividing by zero.

    Returns:
        y [..., d], NaN for a vector whose variance overflows, and what backward reads.
    """
    x_hat = x - x.mean(axis=-1, keepdims=True)
    variance = np.vecdot(x_hat, x_hat)[..., None] / x.shape[-1]
    rstd = 1 / np.sqrt(variance + float(eps))  # [..., 1]
    rstd[rstd == 0] = np.nan  # the variance overflowed, and x̂ = 0 would hide it
    x_hat *= rstd
    y = x_hat * weight
    y += bias
    return y, (x_hat, rstd, weight)


def layer_norm_backward(dy: np.ndarray, saved: Saved) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of x, γ and β.

        dβ = Σ dy           dγ = Σ dy x̂             (over all tokens)

    For x write g = dy γ, the gradient that reaches x̂. x reaches x̂ by three roads: itself, the
    mean, the variance.

        itself:      rstd g
        mean:        a shift of all of x changes nothing, so the mean of g drops out
        variance:    a stretch of x changes nothing either, so g's part along x̂ drops out

        dx = rstd (g - mean(g) - x̂ mean(g x̂))

    Args:
        dy: [..., d].

    Returns:
        dx [..., d], dweight [d], dbias [d].
    """
    x_hat, rstd, weight = saved
    d = dy.shape[-1]
    along = dy * x_hat
    dweight, dbias = sum_rows(along), sum_rows(dy)
    mean_g, mean_g_x_hat = ((array @ weight)[..., None] / d for array in (dy, along))
    dx = dy * weight
    dx -= mean_g
    dx -= np.multiply(x_hat, mean_g_x_hat, out=along)
    dx *= rstd
    return dx, dweight, dbias
