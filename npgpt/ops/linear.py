"""Linear map y = x W + b: the projections of attention, the layers of the FFN (article 7.7, 8.1).

W is [in, out], as in the article and in GPT-2's checkpoint (its Conv1D).
"""

from __future__ import annotations

import numpy as np

from npgpt.ops.project import Saved as Saved
from npgpt.ops.project import project_backward, project_forward
from npgpt.ops.row_sum import sum_rows


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
    y, saved = project_forward(x, W)
    y += b
    return y, saved


def linear_backward(dy: np.ndarray, saved: Saved) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of x, W and b.

    Those of x and W are `project_backward`'s; b meets every row n as it is:

        dx = dy Wᵀ          dW = xᵀ dy (summed over all rows n)         db = Σ_n dy[n]

    Args:
        dy: [..., out].

    Returns:
        dx [..., in], dW [in, out], db [out].
    """
    dx, dW = project_backward(dy, saved)
    return dx, dW, sum_rows(dy)
