"""The same numbers laid out in another way: arrays of another shape, or in another order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

SAME = 0.01  # ‖Δ‖ / ‖npgpt‖ at most: another order of the numbers is a hundred times as far away

Layout = Callable[[np.ndarray, tuple[int, ...]], "np.ndarray | None"]


def layouts(ours: np.ndarray, shape: tuple[int, ...]) -> Iterator[tuple[str, np.ndarray]]:
    """npgpt's array in every known way that has this shape."""
    for says, lay_out in TABLE.items():
        made = lay_out(ours, shape)
        if made is not None and made.shape == shape:
            yield says, made


def parts(ours: np.ndarray, theirs: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Parts of the other side's array that have the shape of npgpt's."""
    if theirs.ndim == ours.ndim + 1 and theirs.shape[1:] == ours.shape and len(theirs):
        yield "the first of several texts", theirs[0]
    if theirs.ndim == ours.ndim == 2:
        (rows, columns), (n, m) = ours.shape, theirs.shape
        if (n > rows, m > columns) in ((True, False), (False, True)) and n >= rows and m >= columns:
            yield "padding behind it", theirs[:rows, :columns]


def same_numbers(ours: np.ndarray, other: Any) -> str | None:
    """How the other side's array, of another shape, has npgpt's numbers; None if it has not.

    Args:
        other: what `np.asarray` reads; only if its shape is that of a known layout.
    """
    if not _may_be(ours.shape, other.shape):
        return None
    theirs = np.asarray(other)
    pairs = [(says, made, theirs) for says, made in layouts(ours, theirs.shape)]
    pairs += [(says, ours, part) for says, part in parts(ours, theirs)]
    for says, made, part in pairs:
        seen = np.isfinite(made)  # not so masked scores
        a, b = (np.where(seen, x, 0).astype(np.float64) for x in (made, part))
        if a.any() and np.linalg.norm(a - b) <= SAME * np.linalg.norm(a):
            return says
    return None


def _may_be(ours: tuple[int, ...], theirs: tuple[int, ...]) -> bool:
    a, b = (np.broadcast_to(np.float32(0), shape) for shape in (ours, theirs))
    return any(True for _ in (*layouts(a, theirs), *parts(a, b)))


def _transposed(ours: np.ndarray, _shape: tuple[int, ...]) -> np.ndarray | None:
    return ours.swapaxes(-1, -2) if ours.ndim > 1 else None


def _merged(ours: np.ndarray, _shape: tuple[int, ...]) -> np.ndarray | None:
    """[H, T, d_h] as [T, H d_h]."""
    if ours.ndim != 3:
        return None
    H, T, d_h = ours.shape
    return ours.swapaxes(0, 1).reshape(T, H * d_h)


def _positions_first(ours: np.ndarray, _shape: tuple[int, ...]) -> np.ndarray | None:
    """[H, T, d_h] as [T, H, d_h]."""
    return ours.swapaxes(0, 1) if ours.ndim == 3 else None


def _not_swapped(ours: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """[T, H d_h] cut up as if it were [H, T, d_h]."""
    merged = _merged(ours, shape)
    return None if merged is None else merged.reshape(ours.shape)


def _split(ours: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """[T, H d_h] as [T, H, d_h]."""
    fits = ours.ndim == 2 and len(shape) == 3 and shape[0] == len(ours)
    return ours.reshape(shape) if fits and ours.size == np.prod(shape) else None


def _split_and_swapped(ours: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """[T, H d_h] as [H, T, d_h]."""
    swapped = shape[1::-1] + shape[2:]
    split = _split(ours, swapped) if len(shape) == 3 else None
    return None if split is None else split.swapaxes(0, 1)


def _axis_of_one(ours: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    bare = [n for n in shape if n != 1]
    return ours.reshape(shape) if bare == [n for n in ours.shape if n != 1] else None


def _flat(ours: np.ndarray, _shape: tuple[int, ...]) -> np.ndarray | None:
    return ours.reshape(-1)


def _last(ours: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """[T, V] as [V] or [1, V]."""
    last = ours[-1:] if ours.ndim == 2 else None
    return last[0] if last is not None and len(shape) == 1 else last


TABLE: dict[str, Layout] = {
    "the transpose": _transposed,
    "an axis of 1 at another place": _axis_of_one,
    "the heads merged, [T, H d_h]": _merged,
    "positions before heads, [T, H, …]": _positions_first,
    "[T, H d_h] cut into heads without swapping T and H": _not_swapped,
    "the heads split, [T, H, d_h]": _split,
    "the heads split, [H, T, d_h]": _split_and_swapped,
    "one axis instead of all": _flat,
    "the last position alone": _last,
}
