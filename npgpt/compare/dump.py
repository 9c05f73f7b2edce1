"""Stations in a file, written by npgpt or by any other program: `.safetensors` or `.npz`.

The names are those of `activations.py`, the shapes those of one text without a batch axis; a
leading axis of 1 is removed. Other formats are refused: torch's .pt would have to be unpickled,
which runs the code that it contains.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npgpt.compare.activations import GRAD, INPUTS, is_optional
from npgpt.compare.layouts import same_numbers
from npgpt.files.checkpoint import shortened
from npgpt.files.io import expanded
from npgpt.files.npz_file import NpzArray, read_npz
from npgpt.files.safetensors_file import DTYPES, Entry, read_header, read_tensor

SUFFIXES = (".safetensors", ".npz")
MOST_IDS = 1 << 20


class Stored(NamedTuple):
    """An array in a `.safetensors` file; `np.asarray` reads it."""

    entry: Entry

    @property
    def shape(self) -> tuple[int, ...]:
        return self.entry.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32) if self.entry.dtype == "BF16" else DTYPES[self.entry.dtype]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return read_tensor(self.entry).astype(dtype or self.dtype, copy=False)


AnyArray = np.ndarray | NpzArray | Stored


class Dump(NamedTuple):
    """Stations of another implementation; those in a file are read each time they are used."""

    arrays: Mapping[str, AnyArray]
    precision: dict[str, str]  # station -> float64, float32, float16 or bfloat16


class Shaped(Mapping[str, np.ndarray]):
    """Arrays of a dump in npgpt's shapes, which are not all in memory at once."""

    def __init__(self, arrays: Mapping[str, AnyArray], shapes: Mapping[str, tuple[int, ...]]):
        self._arrays, self._shapes = arrays, shapes

    def __getitem__(self, name: str) -> np.ndarray:
        shape = self._shapes[name]
        return np.asarray(self._arrays[name]).reshape(shape)

    def __contains__(self, name: object) -> bool:
        return name in self._shapes  # without reading it

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


class Matched(NamedTuple):
    """A dump sorted by what npgpt computed; each list in the order of the pass or of the file."""

    arrays: Mapping[str, np.ndarray]  # what both have, in npgpt's shapes
    missing: list[str]  # what the dump lacks, optional names left out
    unknown: list[str]  # names that mean nothing here
    unread: list[str]  # loss and gradients, where npgpt did not compute them


def read_stations(path: str | os.PathLike[str]) -> Dump:
    """Every array of a `.safetensors` or `.npz` file.

    Raises FileNotFoundError, or ValueError for another suffix, a damaged file, or an array that
    does not hold real numbers.
    """
    path = expanded(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: stations are read from a {' or '.join(SUFFIXES)} file.")
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist; have your program write its stations there."
        )
    dump = _read_npz(path) if path.suffix == ".npz" else _read_safetensors(path)
    for name, array in dump.arrays.items():
        if array.dtype.kind not in "fiu":
            raise ValueError(
                f"{path}: {name!r} is stored as {array.dtype}, which NumPy does not know as real "
                "numbers; save it as float32."
            )
    return dump


def ids_in(dump: Dump, path: str | os.PathLike[str], name: str = "ids") -> np.ndarray | None:
    """The token ids that a dump calls `name`, [T] int64; None if it has none.

    Raises ValueError when they are not whole numbers, or of several texts.
    """
    if name not in dump.arrays:
        return None
    shape = dump.arrays[name].shape
    if math.prod(shape) > MOST_IDS:
        raise ValueError(f"{path}: {name!r} has shape {[*shape]}, more than {MOST_IDS} ids.")
    ids = np.asarray(dump.arrays[name])
    ids = ids[0] if ids.ndim == 2 and len(ids) == 1 else ids
    if ids.ndim != 1:
        raise ValueError(f"{path}: {name!r} has shape {[*shape]}, but has to be one text, [T].")
    with np.errstate(invalid="ignore"):
        whole = ids.astype(np.int64)
    if not np.array_equal(whole, ids):
        raise ValueError(f"{path}: {name!r} holds {ids[whole != ids][0]}, which is no token id.")
    return whole


def match_stations(
    ours: Mapping[str, np.ndarray],
    dump: Dump,
    params: Iterable[str],
    path: str | os.PathLike[str],
) -> Matched:
    """Sort a dump's arrays by what npgpt computed.

    Args:
        ours: npgpt's stations, `ids` (and `target_ids`) included.
        params: names of all parameters; their gradients are known names even if not in `ours`.

    Raises ValueError when the two have no station in common, or one has another shape.
    """
    params = [*params]
    known = ["loss", *(GRAD + name for name in (*ours, *params))]
    unread = [name for name in known if name in dump.arrays and name not in ours]
    unknown = [name for name in dump.arrays if name not in ours and name not in known]
    names = [name for name in ours if name not in INPUTS]
    common = [name for name in names if name in dump.arrays]
    if not common:
        raise ValueError(
            f"{path} has no station to compare, only {shortened(dump.arrays) or 'nothing'}; "
            + ("add --gradients." if unread else f"npgpt's are {shortened(names)}.")
        )
    if unfit := misshapen(ours, dump):
        raise ValueError(f"{path}: {_refusal(ours, dump, unfit)}.")
    arrays = Shaped(dump.arrays, {name: ours[name].shape for name in common})
    missing = [name for name in names if name not in arrays and not is_optional(name, params)]
    return Matched(arrays, missing, unknown, unread)


def misshapen(ours: Mapping[str, np.ndarray], dump: Dump) -> list[str]:
    """The names of both whose arrays differ in shape by more than a batch axis of 1."""
    return [
        name
        for name, array in ours.items()
        if name in dump.arrays
        and name not in INPUTS
        and dump.arrays[name].shape not in (array.shape, (1, *array.shape))
    ]


def _refusal(ours: Mapping[str, np.ndarray], dump: Dump, unfit: Sequence[str]) -> str:
    """What is wrong with their shapes, and which known layout has the same numbers."""
    name, *others = unfit
    said = {n: same_numbers(ours[n], dump.arrays[n]) for n in unfit}
    text = f"{name!r} has shape {[*dump.arrays[name].shape]}, but npgpt's has {[*ours[name].shape]}"
    text += f", and the same numbers: {said[name]}" if said[name] else ""
    text += f"; {len(others)} more differ as well" if others else ""
    alike: dict[str, list[str]] = {}
    for other in others:
        if says := said[other]:
            alike.setdefault(says, []).append(other)
    return text + "".join(f"; {says}: {shortened(names)}" for says, names in alike.items())


def _read_safetensors(path: Path) -> Dump:
    arrays = {name: Stored(entry) for name, entry in read_header(path).items()}
    bfloat16 = {name for name, stored in arrays.items() if stored.entry.dtype == "BF16"}
    precision = {n: "bfloat16" if n in bfloat16 else _precision(a) for n, a in arrays.items()}
    return Dump(arrays, precision)


def _read_npz(path: Path) -> Dump:
    arrays = read_npz(path)
    return Dump(arrays, {name: _precision(array) for name, array in arrays.items()})


def _precision(array: AnyArray) -> str:
    return array.dtype.name if array.dtype.name in ("float16", "float32") else "float64"
