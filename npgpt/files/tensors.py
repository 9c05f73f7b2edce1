"""Which stored tensor is which parameter, by one small table for each architecture.

Names lose what wrappers and transformers put before them, old names become today's, buffers are
dropped. Whatever is missing or does not fit is refused before a value is read. A Linear's matrices
are turned once, from [out, in] to [in, out]. Saving goes the same way in reverse.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from npgpt.files.checkpoint import float_type, shortened, stored_tensors
from npgpt.files.foreign import check_plain_names
from npgpt.files.safetensors_file import Entry, map_tensor, read_tensor

WRAPPERS = ("module", "_orig_mod")  # of DistributedDataParallel and torch.compile
FLOATS = ("F32", "F16", "BF16", "F64")
Shapes = Mapping[str, tuple[int, ...]]


class Layout(NamedTuple):
    """How an architecture's checkpoints name and store its parameters."""

    model: str  # what warnings call it
    prefix: str  # stands before every name, except those that begin with one of `bare`
    bare: tuple[str, ...]
    matrices: str  # pattern of the names that are stored [out, in]
    blocks: Mapping[str, str]  # what stands before a block's number -> the setting that counts them
    unit: str = "blocks"  # what that setting counts
    old_names: Mapping[str, str] = {}  # the end of a name -> what it is today
    buffers: tuple[str, ...] = ()  # ends of names that are no parameters
    optional: tuple[str, ...] = ()  # parameters that are zero where they are missing
    refused: Mapping[str, str] = {}  # the end of a name that this model cannot have -> why
    hints: Mapping[str, str] = {}  # parameter -> what to add where it is missing
    keeps_others: bool = False  # whether tensors that are not used are saved again

    def is_matrix(self, name: str) -> bool:
        """Whether a parameter is stored [out, in]."""
        return re.fullmatch(self.matrices, name) is not None

    def our_name(self, stored: str) -> str:
        """The parameter's name, from that of the stored tensor."""
        name = re.sub(rf"^({re.escape(self.prefix)})+", "", unwrapped(stored))
        for old, new in self.old_names.items():
            if name.endswith(old):
                name = name.removesuffix(old) + new
        return name


def unwrapped(stored: str) -> str:
    """A stored tensor's name without those of wrappers."""
    return ".".join(part for part in stored.split(".") if part not in WRAPPERS)


class Stored(NamedTuple):
    """The tensors of a checkpoint, by the parameters' names."""

    source: Path  # the file, or its index; errors and warnings name it
    layout: Layout
    entries: dict[str, Entry]
    origins: dict[str, str]  # parameter -> name in the file


class Copy(NamedTuple):
    """What a tensor that may be stored a second time must be equal to."""

    of: str
    hint: str = "tied; set tie_word_embeddings to false to keep the head"


def find_tensors(folder: Path, layout: Layout) -> Stored:
    """The tensors in a folder; reads headers only.

    Raises FileNotFoundError where there are none, and ValueError for a damaged file, for quantised
    weights, or for two tensors of one name.
    """
    source, tensors = stored_tensors(folder)
    check_plain_names(tensors, source)
    found = Stored(source, layout, {}, {})
    for origin, entry in tensors.items():
        name = layout.our_name(origin)
        if name.endswith(layout.buffers):
            continue
        if name in found.entries:
            raise ValueError(
                f"{source}: {found.origins[name]!r:.80} and {origin!r:.80} are both {name!r:.80}."
            )
        found.entries[name], found.origins[name] = entry, origin
    return found


def stored_rows(stored: Stored, table: str, config: Any, key: str, *, padded: bool = False) -> int:
    """Rows of a table, which take precedence over what `key` of config.json says.

    Warns where they differ; `padded`: only where there are fewer, because a vocabulary is often
    padded and the padding seldom noted. Where there is no such table, what `key` says.
    """
    configured: int = getattr(config, key)
    shape = stored.entries[table].shape if table in stored.entries else ()
    if len(shape) != 2 or shape[0] == 0:
        return configured
    if shape[0] < configured or (shape[0] > configured and not padded):
        warnings.warn(
            f"{stored.source}: {table} has {shape[0]} rows, but {key} is {configured} in "
            f"config.json; using {shape[0]}.",
            UserWarning,
            stacklevel=3,  # here and below: the line that called the architecture's loader
        )
    return shape[0]


def load_params(
    stored: Stored,
    shapes: Shapes,
    config: Any,
    dtype: DTypeLike,
    copies: Mapping[str, Copy],
) -> dict[str, np.ndarray]:
    """Every parameter of `shapes`, matrices [in, out], C-contiguous, float32 or float64.

    `config` counts the blocks; `copies` may be stored as well and must then be equal.

    Raises ValueError, one sentence, for tensors missing, misshapen, of a wrong dtype, of blocks
    beyond the configuration's, and for copies that differ. Warns of tensors that are not used and
    of values that are not finite.
    """
    source, layout, entries, _ = stored
    dtype = float_type(dtype)
    wanted = {n: shape[::-1] if layout.is_matrix(n) else shape for n, shape in shapes.items()}
    _check_complete(stored, wanted, copies)
    for name, shape in wanted.items():
        if name in entries:
            _check_entry(name, entries[name], shape, source)
    extra = [name for name in entries if name not in wanted and name not in copies]
    _check_extra(extra, stored, config)
    params = {}
    mapped: dict[Path, np.ndarray] = {}
    for name, shape in wanted.items():
        entry = entries.get(name)
        param = np.zeros(shape, dtype) if entry is None else map_tensor(entry, mapped)
        param = as_float(param, dtype)
        params[name] = param.T.copy() if layout.is_matrix(name) else param
    for name, copy in copies.items():
        if name in entries:
            _check_copy(name, read_tensor(entries[name]), copy, params, source)
    warn_of_broken(params, source)
    return params


def as_stored(params: Mapping[str, np.ndarray], layout: Layout) -> dict[str, np.ndarray]:
    """The tensors as a checkpoint names and stores them."""
    return {
        name if name.startswith(layout.bare) else layout.prefix + name: (
            param.T if layout.is_matrix(name) else param
        )
        for name, param in params.items()
    }


def as_float(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """In this dtype, without a copy if it is already."""
    with np.errstate(over="ignore"):  # becomes infinite, and is reported as such
        return array.astype(dtype, copy=False)


def _check_complete(stored: Stored, wanted: Shapes, copies: Mapping[str, Copy]) -> None:
    source, layout, entries, _ = stored
    missing = [name for name in wanted if name not in entries and name not in layout.optional]
    if not missing:
        return
    hint = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    hint += layout.hints.get(missing[0], "")
    for name, copy in copies.items():
        if copy.of == missing[0] and name in entries:
            hint += f"; {name} cannot stand in for it"
    shape = list(wanted[missing[0]])
    raise ValueError(f"{source}: lacks {missing[0]!r} of shape {shape}{hint}.")


def _check_entry(name: str, entry: Entry, expected: tuple[int, ...], source: Path) -> None:
    if entry.shape != expected:
        raise ValueError(
            f"{source}: {name!r} has shape {list(entry.shape)}, "
            f"but by config.json it must have {list(expected)}."
        )
    if entry.dtype not in FLOATS:
        raise ValueError(
            f"{source}: {name!r} is stored as {entry.dtype}, but a weight must be one of "
            f"{', '.join(FLOATS)}; save the checkpoint without quantisation."
        )


def _check_extra(extra: list[str], stored: Stored, config: Any) -> None:
    source, layout = stored.source, stored.layout
    for name in extra:
        for blocks, key in layout.blocks.items():
            block = re.match(rf"{re.escape(blocks)}\.(\d+)\.", name)
            if block and int(block[1]) >= getattr(config, key):
                raise ValueError(
                    f"{source}: has {name!r:.80}, but {key} is {getattr(config, key)} in "
                    f"config.json; set it to the number of {layout.unit}."
                )
        for end, reason in layout.refused.items():
            if name.endswith(end):
                raise ValueError(f"{source}: has {name!r:.80}, but {reason}.")
    if extra:
        kept = ", but kept on saving" if layout.keeps_others else ""
        warnings.warn(
            f"{source}: not part of {layout.model} and not used{kept}: {shortened(extra)}.",
            UserWarning,
            stacklevel=4,
        )


def _check_copy(
    name: str, array: np.ndarray, copy: Copy, params: Mapping[str, np.ndarray], source: Path
) -> None:
    param = params[copy.of]
    if not np.array_equal(as_float(array, param.dtype), param, equal_nan=True):
        raise ValueError(
            f"{source}: {name!r} differs from {copy.of!r}, but by config.json the two are "
            f"{copy.hint}."
        )


def broken_names(params: Mapping[str, np.ndarray]) -> list[str]:
    """The arrays with a value that is NaN or infinite.

    A sum of squares is finite only if all values are, and costs little; where it is not, perhaps
    because it is itself too large, each value is looked at.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = {name: np.dot(a.reshape(-1), a.reshape(-1)) for name, a in params.items()}
    suspects = [name for name, square in squares.items() if not np.isfinite(square)]
    return [name for name in suspects if not np.isfinite(params[name]).all()]


def warn_of_broken(params: Mapping[str, np.ndarray], source: Path) -> None:
    """Warn, naming them, of parameters with a value that is NaN or infinite."""
    if broken := broken_names(params):
        warnings.warn(
            f"{source}: NaN or infinite values in {shortened(broken)}.", UserWarning, stacklevel=4
        )
