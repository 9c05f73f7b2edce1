"""Fixed positions: sines and cosines of many frequencies, not a learned table (article chapter 2).

They have no parameters and no last position. Leaves out adding them to the token vectors, which is
a plain sum.
"""

from __future__ import annotations

import numpy as np


def sinusoids(positions: np.ndarray, d: int) -> np.ndarray:
    """A row of d numbers for each position, as in the paper of 2017 (section 3.5).

        table[t, 2i]     = sin(p / 10000^(2i/d)),       p = positions[t]
        table[t, 2i + 1] = cos(p / 10000^(2i/d))

    Args:
        positions: [T] integers.
        d: width.

    Returns:
        float64 [T, d]; it is rounded once, when it is cast.
    """
    pairs = np.arange(d) // 2
    angles = positions[:, None] / 10_000 ** (2 * pairs / d)  # [T, d]
    return np.where(np.arange(d) % 2 == 0, np.sin(angles), np.cos(angles))


def sinusoids_in_halves(positions: np.ndarray, d: int) -> np.ndarray:
    """The same numbers in Marian's order: first all sines, then all cosines; float64 [T, d]."""
    table = sinusoids(positions, d)
    return np.concatenate([table[:, 0::2], table[:, 1::2]], axis=-1)
