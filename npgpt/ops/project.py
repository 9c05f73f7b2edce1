"""Projection y = x W: a linear map without bias, all that Llama uses (article 7.7, 8.1).

W is [in, out]; `linear.py` adds the bias.
"""

from __future__ import annotations

import numpy as np

from npgpt.ops.few_rows import times_matrix

Saved = tuple[np.ndarray, np.ndarray]  # x, W


def project_forward(x: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, Saved]:
    """Multiply every row vector of x by W. Article 7.3 step 1.

        y[..., j] = Σ_i x[..., i] W[i, j]

    Args:
        x: [..., in].
        W: [in, out].

    Returns:
        y [..., out], and what backward reads.
    """
    y = times_matrix(x.reshape(-1, W.shape[0]), W)  # one product over all leading axes: [N, out]
    return y.reshape(*x.shape[:-1], W.shape[1]), (x, W)


def project_backward(dy: np.ndarray, saved: Saved) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of x and W.

    From y[n, j] = Σ_i x[n, i] W[i, j], each factor gets dy times the other one:

        dx = dy Wᵀ          dW = xᵀ dy (summed over all rows n)

    Args:
        dy: [..., out].

    Returns:
        dx [..., in], dW [in, out].
    """
    x, W = saved
    d_in, d_out = W.shape
    rows, drows = x.reshape(-1, d_in), dy.reshape(-1, d_out)  # [N, in], [N, out]
    return (drows @ W.T).reshape(x.shape), rows.T @ drows
