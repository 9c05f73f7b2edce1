"""Cut a projection into heads and put the heads together again (article 7.6).

Only the projected vectors are cut. Cutting x W_Q into H pieces is the same as H matrices [d, d_h]
that each read the whole x: piece i uses columns i d_h .. (i+1) d_h of W_Q.
"""

from __future__ import annotations

import numpy as np


def split_heads_forward(x: np.ndarray, *, n_head: int) -> tuple[np.ndarray, None]:
    """Cut d into H heads and move the head axis before T. Article 7.6.

        y[..., h, t, i] = x[..., t, h d_h + i]

    Args:
        x: [..., T, d], d divisible by H.
        n_head: H.

    Returns:
        y [..., H, T, d_h], a view of x; backward reads nothing.
    """
    *lead, T, d = x.shape
    return np.swapaxes(x.reshape(*lead, T, n_head, d // n_head), -3, -2), None


def split_heads_backward(dy: np.ndarray, saved: None) -> np.ndarray:  # noqa: ARG001
    """Gradient of x: every number moves back where it came from: `merge_heads_forward`.

    Args:
        dy: [..., H, T, d_h].

    Returns:
        dx [..., T, d].
    """
    return merge_heads_forward(dy)[0]


def merge_heads_forward(x: np.ndarray) -> tuple[np.ndarray, int]:
    """Lay the heads side by side again. Article 7.6.

        y[..., t, h d_h + i] = x[..., h, t, i]

    Args:
        x: [..., H, T, d_h].

    Returns:
        y [..., T, d], and H, which backward reads.
    """
    *lead, H, T, d_h = x.shape
    return np.swapaxes(x, -3, -2).reshape(*lead, T, H * d_h), H


def merge_heads_backward(dy: np.ndarray, saved: int) -> np.ndarray:
    """Gradient of x: the numbers move back, so this is `split_heads_forward`.

    Args:
        dy: [..., T, d].

    Returns:
        dx [..., H, T, d_h], a view of dy.
    """
    return split_heads_forward(dy, n_head=saved)[0]
