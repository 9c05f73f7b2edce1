"""Token embedding: turn ids into vectors by taking rows of a table (article chapter 5).

The position table is in `position.py`; the token table read the other way round, from vectors to
logits, in `lm_head.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Saved = tuple[np.ndarray, tuple[int, ...]]  # ids, table.shape


def lookup_forward(ids: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, Saved]:
    """Take row `ids[t]` of `table` for every t. Article 5.1.

        y[..., :] = table[ids[...], :]      the same as one_hot(ids) @ table, without the product
        (5.2)

    Args:
        ids: [...] integers in 0..V-1.
        table: [V, d].

    Returns:
        y [..., d] in the table's dtype, and what backward reads.

    Raises:
        ValueError: ids are not integers, or one of them has no row. (NumPy would take -1 for the
            last row.)
    """
    check_rows(ids, table, "token id")
    return table[ids], (ids, table.shape)


def lookup_backward(
    dy: np.ndarray, saved: Saved, *, add_to: np.ndarray | None = None
) -> np.ndarray:
    """Gradient of the table; ids have none.

        dtable[v] = Σ dy[t] over all t with ids[t] = v

    That is one_hot(ids)ᵀ @ dy: only the rows that were used get a gradient, and an id that occurs
    twice gets the sum of both.

    Args:
        dy: [..., d].
        add_to: another gradient of the same table [V, d], which takes up this one in place; for
            tables that are used twice (10.2).

    Returns:
        dtable [V, d].
    """
    ids, shape = saved
    dtable = np.zeros(shape, dy.dtype) if add_to is None else add_to
    np.add.at(dtable, ids, dy)  # unlike dtable[ids] += dy, this adds up repeated ids
    return dtable


def check_rows(ids: np.ndarray, table: np.ndarray, what: str) -> None:
    """Raise ValueError, naming the first offender, unless each id is an integer with a row."""
    check_integers(ids, f"{what}s")
    wrong = (ids < 0) | (ids >= len(table))
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"{what} {ids[where]} at index {list(where)} has no row: "
            f"the table holds 0..{len(table) - 1}."
        )


def check_ids(ids: Any, name: str = "token ids") -> np.ndarray:
    """As int64; ValueError unless they are integers, [T] or [B, T] and not empty.

    Only one dtype goes on, because uint64 and int64 together make float64, and small integers do
    not hold every id.
    """
    ids = as_array(ids, name)
    if ids.ndim not in (1, 2) or ids.size == 0:
        shape = [*ids.shape]
        raise ValueError(f"{name} must be [T] or [B, T] and not empty, but have shape {shape}.")
    check_integers(ids, name)
    if ids.dtype == np.uint64 and ids.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must be below 2^63, but {ids.max()} is among them.")
    return ids.astype(np.int64, copy=False)


def check_mask(mask: Any, wanted: tuple[int, ...], name: str = "attention_mask") -> np.ndarray:
    """As bool; ValueError unless it is 0 or 1 for each of these ids, as number or bool."""
    mask = as_array(mask, name)
    check_shape(name, mask, wanted)
    if mask.dtype.kind not in "biuf" or not ((mask == 0) | (mask == 1)).all():
        raise ValueError(f"{name} must be 1 for tokens and 0 for padding, nothing else.")
    return mask.astype(bool)


def check_shape(name: str, array: np.ndarray, wanted: tuple[int, ...]) -> None:
    """Raise ValueError unless what goes with ids has the shape that they want."""
    if array.shape != wanted:
        raise ValueError(f"{name} has shape {[*array.shape]}, but these ids want {[*wanted]}.")


def as_array(value: Any, name: str) -> np.ndarray:
    """As an array; ValueError for what is none, such as rows of different length."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{name} must be an array, or lists that are equally long.") from error


def check_integers(ids: np.ndarray, name: str) -> None:
    """Raise ValueError unless the dtype is one of integers; bool and spans of time are none."""
    if ids.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers, but have dtype {ids.dtype}.")
