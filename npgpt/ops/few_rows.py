"""Products of few rows with a large matrix, as decoding has them: one row for each text.

BLAS is made for many rows. With few it matters most how the matrix comes from memory, and that is
fastest from front to back. The results are those of `@` up to rounding, and their errors smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from npgpt.ops.threads import is_openblas, parallel, parallel_blas, thread_count

LARGE = 1 << 16  # numbers in a matrix, from which this is quicker
SHARED = 460_800  # numbers from which OpenBLAS shares the product with a vector out among threads
FEW = 3  # rows up to which as many products with a vector take less time than one of matrices
SUMS = 16  # partial sums of one row's product: a single one over all rows of W would round more
# Up to such sizes OpenBLAS multiplies without copying both factors first, into an order of its own.
TILE, PRODUCTS, NARROWEST = 1024, 1_000_000, 16


def times_matrix(x: np.ndarray, W: np.ndarray) -> np.ndarray:
    """x W, [N, in] times [in, out].

    A single x takes the rows of W one after the other; OpenBLAS takes four side by side, which come
    slower from memory. What it would share out among several threads is left to it, and so are a
    few x, each by itself: a product of matrices would first copy W into an order of its own.
    Another BLAS gets everything as it is.
    """
    if W.size < LARGE or len(x) > FEW or not is_openblas():
        return x @ W
    shared = W.size >= SHARED and thread_count() > 1
    if len(x) != 1 or shared or not W.flags.c_contiguous or len(W) % SUMS:
        return (x[:, None] @ W)[:, 0]
    sums = np.einsum("ki,kij->kj", x.reshape(SUMS, -1), W.reshape(SUMS, -1, W.shape[1]))
    return sums.sum(axis=0, keepdims=True)


def times_table(x: np.ndarray, table: np.ndarray) -> np.ndarray:
    """x tableᵀ, [N, d] times [V, d] transposed: the inner products of all rows."""
    (N, d), V = x.shape, len(table)
    tile = min(min(TILE, PRODUCTS // d) // max(N, 1), V)
    large = table.size >= LARGE and table.flags.c_contiguous
    if N == 0 or not large or tile < NARROWEST:
        return x @ table.T
    y = np.empty((N, V), np.result_type(x, table))

    def multiply(rows: slice) -> None:
        if N == 1:
            np.vecdot(table[rows], x, out=y[:, rows])
            return
        tiles = table[rows].reshape(-1, tile, d)
        np.matmul(x, tiles.swapaxes(-1, -2), out=y[:, rows].reshape(N, -1, tile).swapaxes(0, 1))

    whole = V - V % tile
    y[:, whole:] = x @ table[whole:].T
    size = math.ceil(whole / tile / thread_count()) * tile
    parts = [slice(start, min(start + size, whole)) for start in range(0, whole, size)]
    in_threads: Callable[..., None] = parallel if N == 1 else parallel_blas
    in_threads(multiply, parts)
    return y
