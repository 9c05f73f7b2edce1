"""Pieces of arrays small enough to stay in the processor's cache.

An operation of many passes over a large array would fetch it from memory once a pass; piece by
piece it does so once in all, and the pieces of very large arrays can be shared out among threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from npgpt.ops import threads

SIZE = 1 << 16  # numbers a piece; three pieces of float32 fit a second-level cache of 1 MB
MANY = 1 << 19  # numbers from which several threads are quicker


def chunks(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """The same rows of each array, as views, one piece after the other.

    Args:
        arrays: [N, ...] each, all with the same N; the first says how many rows are a piece.
    """
    first, *_ = arrays
    rows = max(1, SIZE // max(1, first[:1].size))
    if rows >= len(first):
        yield arrays
        return
    for start in range(0, len(first), rows):
        yield tuple(array[start : start + rows] for array in arrays)


def map_chunks(function: Callable[..., object], *arrays: np.ndarray) -> None:
    """Call `function` with every piece of the arrays, on several threads if they are large.

    It may write only what it is given.
    """
    if arrays[0].size >= MANY:
        threads.parallel(lambda piece: function(*piece), chunks(*arrays))
    else:
        for piece in chunks(*arrays):
            function(*piece)
