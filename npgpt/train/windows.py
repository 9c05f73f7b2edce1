"""The windows of a text that training and evaluation read, by number; all of the same length."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from npgpt.decoding.arguments import whole_number
from npgpt.ops.lookup import as_array, check_integers

EPOCH_STREAM = 1  # keeps these draws apart from others with the same seed


def split_tail(ids: np.ndarray, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """(for training, held out): the last `fraction` of the ids is held out."""
    kept = len(ids) - round(len(ids) * fraction)
    return ids[:kept], ids[kept:]


def training_batch(
    ids: Any, first: int, count: int, *, context: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Windows number `first` … `first + count - 1` of the endless sequence that training reads.

    An epoch cuts the text into windows of `context` tokens, from a random offset on and without
    overlap, and shuffles them. Each token is a target once per epoch, at another place of its
    window every time; only the text before the offset and behind the last window, together less
    than two windows, is left out of an epoch. Offset and order come from a generator seeded with
    seed and epoch, so that the number of a window alone says what is in it, and a run can go on
    anywhere.

    Returns:
        ids [count, context] and targets [count, context], int64; the targets are shifted already:
        targets[t] follows ids[t].

    Raises:
        ValueError: the text is shorter than one window and its last target; ids that are not [N]
            integers, counts that are none.
    """
    ids = as_array(ids, "ids")
    check_integers(ids, "ids")
    if ids.ndim != 1:
        raise ValueError(f"ids must be the [N] of a text, but have shape {[*ids.shape]}.")
    first, count = whole_number("first", first, 0), whole_number("count", count, 1)
    context, seed = whole_number("context", context, 1), whole_number("seed", seed, 0)
    per_epoch = windows_per_epoch(len(ids), context)
    starts = []
    for number in range(first, first + count):
        epoch, place = divmod(number, per_epoch)
        offset, order = _epoch(len(ids), context, seed, epoch)
        starts.append(offset + context * int(order[place]))
    return _windows(ids, starts, context)


def windows_per_epoch(length: int, context: int) -> int:
    """How many windows an epoch has; ValueError if the text is too short for one."""
    if length < context + 1:
        raise ValueError(
            f"the training text has {length} tokens, fewer than one block of {context} and its "
            "last target; give more text, a smaller --context, or hold out less."
        )
    return max(1, length // context - 1)  # one less than fit, which leaves room for the offset


@functools.lru_cache(maxsize=2)
def _epoch(length: int, context: int, seed: int, epoch: int) -> tuple[int, np.ndarray]:
    rng = np.random.default_rng((seed, EPOCH_STREAM, epoch))
    per_epoch = windows_per_epoch(length, context)
    offset = int(rng.integers(length - per_epoch * context))
    return offset, rng.permutation(per_epoch)


def held_out_batches(
    ids: np.ndarray, *, context: int, batch_size: int, batches: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same windows each time: without overlap, evenly spaced, at most `batches` batches.

    Yields what `training_batch` returns. Text shorter than a window is one shorter window.
    """
    context = min(context, len(ids) - 1)
    fit = (len(ids) - 1) // context
    count = min(fit, batches * batch_size)
    starts = [context * (i * fit // count) for i in range(count)]
    for i in range(0, count, batch_size):
        yield _windows(ids, starts[i : i + batch_size], context)


def _windows(ids: np.ndarray, starts: list[int], context: int) -> tuple[np.ndarray, np.ndarray]:
    windows = ids[np.array(starts)[:, None] + np.arange(context + 1)].astype(np.int64)
    return windows[:, :-1], windows[:, 1:]
