"""Linear map y = x W + b: the projections of attention, the layers of the FFN (article 7.7, 8.1).

W is [in, out], as in the article and in GPT-2's checkpoint (its Conv1D).
"""

from __future__ import annotations

import numpy as np

from npgpt.ops.few_rows import times_matrix
from npgpt.ops.row_sum import sum_rows

Saved = tuple[np.ndarray, np.ndarray]  # x, W


def linear_forward(x: np.ndarray, W: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, Saved]:
    """Multiply every row vector of x by W and add b. Article 7.3 step 1, 8.1.

        y[..., j] = Σ_i x[..., i] W[i, j] + b[j]

    Args:
        x: [..., in].
        W: [in, out].
        b: [out].

    Returns:
        y [..., out], and what backward reads.
    """
    y = times_matrix(x.reshape(-1, W.shape[0]), W)  # one product over all leading axes: [N, out]
    y += b
    return y.reshape(*x.shape[:-1], W.shape[1]), (x, W)


def linear_backward(dy: np.ndarray, saved: Saved) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of x, W and b.

    From y[n, j] = Σ_i x[n, i] W[i, j] + b[j]: of the product each factor gets dy times the other,
    and b meets every row n as it is:

        dx = dy Wᵀ          dW = xᵀ dy (summed over all rows n)         db = Σ_n dy[n]

    Args:
        dy: [..., out].

    Returns:
        dx [..., in], dW [in, out], db [out].
    """
    x, W = saved
    d_in, d_out = W.shape
    rows, drows = x.reshape(-1, d_in), dy.reshape(-1, d_out)  # [N, in], [N, out]
    return (drows @ W.T).reshape(x.shape), rows.T @ drows, sum_rows(drows)
