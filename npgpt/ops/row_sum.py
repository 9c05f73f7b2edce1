"""Sums over all rows: the gradients of what every token shares, biases and gains."""

from __future__ import annotations

import numpy as np

BLOCK = 64  # rows; measured: of half as many the sums take longer, twice as many lose digits


def sum_rows(x: np.ndarray) -> np.ndarray:
    """Sum over all axes but the last, with no more than the rounding of one number.

    NumPy adds rows to a running total, which in float32 loses the more digits the more rows there
    are. So blocks of rows are added up by BLAS, and their sums in float64.

    Args:
        x: [..., d].

    Returns:
        [d], in x's dtype.
    """
    d = x.shape[-1]
    rows = x.reshape(-1, d)
    if len(rows) < 2 * BLOCK:
        return rows.sum(axis=0)
    count = len(rows) // BLOCK
    blocks, rest = rows[: count * BLOCK].reshape(count, BLOCK, d), rows[count * BLOCK :]
    sums = np.ones(BLOCK, x.dtype) @ blocks  # [count, d]
    return (sums.sum(axis=0, dtype=np.float64) + rest.sum(axis=0)).astype(x.dtype)
