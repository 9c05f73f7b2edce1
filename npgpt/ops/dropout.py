"""Dropout: in training, silence numbers at random and scale up the rest."""

from __future__ import annotations

import numpy as np

Saved = tuple[np.ndarray, float] | None  # which numbers were kept, the scale; None: all of them


def dropout_forward(
    x: np.ndarray, *, p: float, rng: np.random.Generator | None
) -> tuple[np.ndarray, Saved]:
    """Set each number to 0 with probability p, multiply the others by 1 / (1 - p).

        y = x keep / (1 - p),       keep ~ Bernoulli(1 - p)

    The scale keeps the expectation, so that inference simply leaves dropout out.

    Args:
        x: any shape.
        p: probability of silence, in [0, 1).
        rng: the generator that draws; the same state gives the same mask in float32 and float64.
            None: no dropout, as in inference.

    Returns:
        y, like x (x itself if nothing is dropped), and what backward reads.

    Raises:
        ValueError: p is outside [0, 1).
        TypeError: rng is something else, such as a seed.
    """
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a numpy.random.Generator or None, but is {rng!r:.60}.")
    if not 0 <= p < 1:
        raise ValueError(f"dropout probability must be in [0, 1), but is {p}.")
    if p == 0 or rng is None:
        return x, None
    p = float(p)  # an np.float64 would make float64 of float32
    keep = rng.random(x.shape, dtype=np.float32) >= p
    scale = 1 / (1 - p)
    return x * keep * scale, (keep, scale)


def dropout_backward(dy: np.ndarray, saved: Saved) -> np.ndarray:
    """Gradient of x: dx = dy keep / (1 - p), through the same mask.

    Args:
        dy: like x.

    Returns:
        dx, like x.
    """
    if saved is None:
        return dy
    keep, scale = saved
    return dy * keep * scale
