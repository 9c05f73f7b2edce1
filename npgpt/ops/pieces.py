"""Pieces of arrays small enough to stay in the processor's cache.

An operation of many passes over a large array would fetch it from memory once a pass; piece by
piece it does so once in all.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

SIZE = 1 << 16  # numbers a piece; three pieces of float32 fit a second-level cache of 1 MB


def pieces(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """The same piece of each array, as flat views, one after the other.

    Args:
        arrays: C-contiguous, all of one size.
    """
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, SIZE):
        yield tuple(array[start : start + SIZE] for array in flat)
