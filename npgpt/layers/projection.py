"""A projection with or without a bias: one of two operations, as the parameters ask."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npgpt.ops.linear import linear_backward, linear_forward
from npgpt.ops.project import project_backward, project_forward


class ProjectionSaved(NamedTuple):
    """What `projection_backward` reads."""

    x: np.ndarray
    W: np.ndarray
    has_bias: bool


def projection_forward(
    x: np.ndarray, W: np.ndarray, b: np.ndarray | None = None
) -> tuple[np.ndarray, ProjectionSaved]:
    """Multiply every row vector of x by W, and add b if there is one. Article 7.3 step 1, 8.1.

    Args:
        x: [..., in].
        W, b: [in, out], [out] or None.

    Returns:
        y [..., out], and what backward reads.
    """
    y, (x, W) = project_forward(x, W) if b is None else linear_forward(x, W, b)
    return y, ProjectionSaved(x, W, b is not None)


def projection_backward(
    dy: np.ndarray, saved: ProjectionSaved
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Gradients of x, W and b, None for a bias that is not there; see `linear_backward`."""
    x, W, has_bias = saved
    return linear_backward(dy, (x, W)) if has_bias else (*project_backward(dy, (x, W)), None)
