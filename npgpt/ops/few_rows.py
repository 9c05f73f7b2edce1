"""Products of few rows with a large matrix, as decoding has them: one row for each text.

BLAS is made for many rows. With few it matters most how the matrix comes from memory, and that is
fastest from front to back. The results are those of `@` up to rounding, and their errors smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from npgpt.ops.threads import openblas_kernel, parallel, parallel_blas, thread_count

LARGE = 1 << 16  # numbers in a matrix, from which this is quicker
SUMS = 16  # partial sums of one row's product: a single one over all rows of W would round more
# Up to such sizes OpenBLAS multiplies without copying both factors first, into an order of its own.
TILE, PRODUCTS, NARROWEST = 1024, 1_000_000, 16
# Its kernels that do it for x W, too, and are quicker so, for 9 to 31 rows; the sizes of a tile.
WITH_AVX512, COLUMNS, DEPTH = ("SkylakeX", "Cooperlake", "SapphireRapids"), 64, 256


def times_matrix(x: np.ndarray, W: np.ndarray) -> np.ndarray:
    """x W, [N, in] times [in, out].

    A single x takes the rows of W one after the other; BLAS takes four side by side, which come
    slower from memory. Where BLAS has several threads, it is left to them.
    """
    if W.size < LARGE or not W.flags.c_contiguous:
        return x @ W
    if len(x) == 1 and len(W) % SUMS == 0 and thread_count() == 1:
        sums = np.einsum("ki,kij->kj", x.reshape(SUMS, -1), W.reshape(SUMS, -1, W.shape[1]))
        return sums.sum(axis=0, keepdims=True)
    if 8 < len(x) < 32 and openblas_kernel() in WITH_AVX512:
        return _times_tiles(x, W)
    return x @ W


def _times_tiles(x: np.ndarray, W: np.ndarray) -> np.ndarray:
    """x W as (Wᵀ xᵀ)ᵀ, tile by tile of W: then a register holds the same number of 16 rows."""
    N, whole = len(x), W.shape[1] - W.shape[1] % COLUMNS
    upright = np.ascontiguousarray(x.T)  # [in, N]
    y = np.empty((N, W.shape[1]), np.result_type(x, W))

    def multiply(columns: slice) -> None:
        sums = np.zeros((columns.stop - columns.start, N), y.dtype)
        for start in range(0, len(W), DEPTH):
            some = upright[start : start + DEPTH]
            tiles = W[start : start + DEPTH, columns].T.reshape(-1, COLUMNS, len(some))
            sums += np.matmul(tiles, some).reshape(sums.shape)
        y[:, columns] = sums.T

    y[:, whole:] = x @ W[:, whole:]
    parallel_blas(multiply, _slices(whole, COLUMNS))
    return y


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
    in_threads: Callable[..., None] = parallel if N == 1 else parallel_blas
    in_threads(multiply, _slices(whole, tile))
    return y


def _slices(count: int, unit: int) -> list[slice]:
    """One of 0..count-1 for each thread, all multiples of a unit."""
    size = math.ceil(count / unit / thread_count()) * unit
    return [slice(start, min(start + size, count)) for start in range(0, count, size or 1)]
