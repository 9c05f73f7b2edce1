"""The KV cache: keys and values of the tokens already read, so that a new token costs one row.

It holds L x 2 x T x d numbers, however many heads they are cut into (article 7.6), or L x 2 x T x
H_kv d_h where several heads of queries share one of keys and values. Keys and values depend on the
absolute position, so a cache is good for one text that only grows at its end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npgpt.decoding.arguments import whole_number, whole_numbers


class Sizes(NamedTuple):
    """What a model asks of its cache."""

    n_layer: int
    heads: int  # of keys and values
    d_h: int  # width of a head


class KVCache:
    """Preallocated keys and values of every block, [..., H, capacity, d_h] each."""

    def __init__(
        self,
        n_layer: int,
        shape: tuple[int, ...],
        dtype: np.dtype[np.floating],
    ) -> None:
        """Allocate room for `shape` = (*batch, H, capacity, d_h) in each of `n_layer` blocks.

        Raises:
            ValueError: there is not so much memory.
        """
        try:
            self.keys = [np.empty(shape, dtype) for _ in range(n_layer)]
            self.values = [np.empty(shape, dtype) for _ in range(n_layer)]
        except (MemoryError, ValueError) as error:  # ValueError: more than an array may have
            raise ValueError(
                f"a KV cache of {[*shape]} for each of {n_layer} blocks does not fit into memory; "
                "ask for fewer positions (capacity, max_new_tokens) or rows."
            ) from error
        self.length = 0  # positions that every block has filled

    @property
    def capacity(self) -> int:
        """How many positions fit."""
        return self.keys[0].shape[-2]

    @property
    def nbytes(self) -> int:
        """Memory of all keys and values, in bytes."""
        return sum(array.nbytes for array in (*self.keys, *self.values))

    def extend(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Write k, v [..., H, T, d_h] behind those of block `layer`; return all [..., H, S, d_h].

        The views stay valid; `advance` makes the new positions count once every block has written.

        Raises:
            ValueError: they do not fit.
        """
        end = self.length + k.shape[-2]
        if end > self.capacity:
            raise ValueError(
                f"the KV cache has room for {self.capacity} positions, but {end} are needed; "
                f"make it with a larger capacity."
            )
        self.keys[layer][..., self.length : end, :] = k
        self.values[layer][..., self.length : end, :] = v
        return self.keys[layer][..., :end, :], self.values[layer][..., :end, :]

    def advance(self, T: int) -> None:
        """Count T more positions as filled."""
        self.length += T

    def select(self, rows: np.ndarray) -> None:
        """Go on with these rows of the first batch axis, in this order; a row may stand twice.

        What a beam search needs: each beam takes over the past of the one that it continues.
        """
        for array in (*self.keys, *self.values):
            filled = array[..., : self.length, :]
            filled[...] = filled[rows]


def new_cache(sizes: Sizes, batch: Any, capacity: Any, dtype: np.dtype[np.floating]) -> KVCache:
    """An empty cache for ids [*batch, T]; ValueError for what is no batch or no capacity."""
    batch, capacity = whole_numbers("batch", batch, 1), whole_number("capacity", capacity, 1)
    return KVCache(sizes.n_layer, (*batch, sizes.heads, capacity, sizes.d_h), dtype)


def check_cache(kv: Any, sizes: Sizes, batch: tuple[int, ...]) -> None:
    """Raise ValueError unless it is a cache for a model of these sizes and ids [*batch, T].

    Without it, NumPy would spread one row over several and say nothing.
    """
    if not isinstance(kv, KVCache):
        raise ValueError(f"kv must be a KVCache, see new_kv_cache, but is {kv!r:.60}.")
    *made_for, heads, capacity, d_h = kv.keys[0].shape
    if (tuple(made_for), len(kv.keys), heads, d_h) != (batch, *sizes):
        raise ValueError(
            f"kv has {len(kv.keys)} blocks of {[*kv.keys[0].shape]}, but these ids want "
            f"{sizes.n_layer} of {[*batch, sizes.heads, capacity, sizes.d_h]}; see new_kv_cache."
        )
