"""The safetensors file: a JSON header of names, dtypes, shapes and places, then the raw numbers.

    8 bytes   length of the header, little-endian
    header    {"wte.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
    data      the tensors, one right behind the other

The header is checked to the last byte before anything is allocated. Reading is written out here,
because the `safetensors` package under NumPy knows no BF16, and of a damaged file it names neither
the file nor, mostly, the tensor that is wrong. Writing is the package's. Leaves out slices of
tensors and the dtypes that NumPy lacks (F8, F4).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from npgpt.files.io import parse_json, replacing

# BF16 is the upper half of a float32; NumPy has no such dtype, so its bits are read as integers.
DTYPES: dict[str, np.dtype] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
LONGEST_HEADER = 100_000_000  # bytes; the format's own limit
MOST_AXES, MOST_BYTES = 64, 2**63 - 1  # NumPy's limits


class Entry(NamedTuple):
    """Where a tensor lies: its file, dtype as the header spells it, shape, and first byte."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def read_header(path: str | os.PathLike[str]) -> dict[str, Entry]:
    """Name -> place of every tensor in the file.

    Raises ValueError, one sentence naming the file and the tensor, for anything but a whole and
    consistent file; OSError if it cannot be opened.
    """
    path = Path(path)
    table, data_start = _read_table(path)
    entries = {
        name: _entry(path, name, item, data_start)
        for name, item in table.items()
        if name != "__metadata__"
    }
    _check_places(path, entries, data_start, path.stat().st_size)
    return entries


def read_tensor(entry: Entry) -> np.ndarray:
    """One tensor as stored (BF16: the float32 of equal value), C-contiguous, owning its memory."""
    array = np.empty(entry.shape, DTYPES[entry.dtype])
    with entry.path.open("rb") as file:
        file.seek(entry.offset)
        found = file.readinto(array.reshape(-1).view(np.uint8).data)
    if found != array.nbytes:
        raise ValueError(f"{entry.path}: became shorter while it was read; load it again.")
    if entry.dtype != "BF16":
        return array
    widened = np.empty(entry.shape, np.float32)
    np.left_shift(array, 16, out=widened.view(np.uint32), dtype=np.uint32)
    return widened


def map_tensor(entry: Entry, mapped: dict[Path, np.ndarray]) -> np.ndarray:
    """One tensor as `read_tensor` gives it, but where it can be, as the pages of the file itself.

    They are read when they are used, and shared with whoever else has them; what is written to the
    array goes to a page of one's own, never to the file. Where NumPy cannot work on the file's
    bytes, or the system would not let the file be replaced (Windows), the tensor is read.

    Args:
        mapped: the files mapped so far; this one is added. Each map keeps its file open, and macOS
            lets a process have 256 files open, fewer than a checkpoint may have tensors.
    """
    dtype = DTYPES[entry.dtype]
    usable = entry.dtype in ("F32", "F64") and dtype.isnative and entry.offset % dtype.itemsize == 0
    if os.name == "nt" or not usable or entry.nbytes == 0:
        return read_tensor(entry)
    if entry.path not in mapped:
        mapped[entry.path] = np.asarray(np.memmap(entry.path, np.uint8, "c"))
    raw = mapped[entry.path][entry.offset : entry.offset + entry.nbytes]
    return raw.view(dtype).reshape(entry.shape)


def read_tensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Every tensor of a file, see `read_tensor`. Raises as `read_header` does."""
    return {name: read_tensor(entry) for name, entry in read_header(path).items()}


def read_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The texts that the writer put beside the tensors, `__metadata__`."""
    metadata = _read_table(Path(path))[0].get("__metadata__")
    return metadata if isinstance(metadata, dict) else {}


def write_tensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a safetensors file that appears whole or not at all.

    Raises ValueError for a dtype the format lacks, OSError (disk full, no permission); what stood
    at `path` before is then untouched.
    """
    with replacing(Path(path)) as (temporary,):
        write_in_place(temporary, tensors, metadata)


def write_in_place(
    path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None
) -> None:
    """What `write_tensors` does, without its guard against interruption."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    for name, array in tensors.items():
        if array.dtype.newbyteorder("<") not in DTYPES.values():
            raise ValueError(
                f"{name!r:.80} has dtype {array.dtype}, which a safetensors file cannot hold."
            )
    path.touch()
    mode = path.stat().st_mode  # as the umask has it; the package makes files private
    try:
        # The package writes an array's memory as it lies, so it must lie in C order.
        ordered = {name: np.asarray(array, order="C") for name, array in tensors.items()}
        save_file(ordered, path, metadata=None if metadata is None else dict(metadata))
    except SafetensorError as error:
        raise OSError(str(error)) from error
    path.chmod(mode)
    if metadata:
        _sort_metadata(path)


def _sort_metadata(path: Path) -> None:
    """Put the metadata in order: the package's is random, and a save is to repeat its bytes."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        table = json.loads(file.read(length))
        table["__metadata__"] = dict(sorted(table["__metadata__"].items()))
        text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
        file.seek(8)
        file.write(text.ljust(length))


def _read_table(path: Path) -> tuple[dict[str, Any], int]:
    """The JSON object in the header, and the byte at which the data begins."""
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or length > min(size - 8, LONGEST_HEADER):
            raise ValueError(_not_safetensors(path, prefix, size))
        table = parse_json(file.read(length), f"{path}: the header")
    if not isinstance(table, dict):
        raise ValueError(
            f"{path}: the header is not a JSON object, so this is no safetensors file."
        )
    return table, 8 + length


def _entry(path: Path, name: str, item: Any, data_start: int) -> Entry:
    item = item if isinstance(item, dict) else {}
    dtype, shape, span = item.get("dtype"), item.get("shape"), item.get("data_offsets")
    if not isinstance(dtype, str) or not _naturals(shape) or not _naturals(span) or len(span) != 2:
        raise ValueError(
            f"{path}: tensor {name!r:.80} lacks a proper dtype, shape or data_offsets."
        )
    if dtype not in DTYPES:
        raise ValueError(
            f"{path}: tensor {name!r:.80} is stored as {dtype:.20}, which NumPy cannot hold; "
            "save it as F32, F16 or BF16."
        )
    entry = Entry(path, dtype, tuple(shape), data_start + span[0])
    if span[1] - span[0] != entry.nbytes:
        raise ValueError(
            f"{path}: tensor {name!r:.80} ({dtype} {shape}) takes {entry.nbytes} bytes, "
            f"but its data_offsets {span} leave {span[1] - span[0]}; the file is damaged."
        )
    # Where one is 0, so is the size, but NumPy multiplies the axes without those of length 0.
    if math.prod(n or 1 for n in shape) * DTYPES[dtype].itemsize > MOST_BYTES:
        raise ValueError(f"{path}: tensor {name!r:.80} has the shape {shape}, which is too large.")
    return entry


def _check_places(path: Path, entries: Mapping[str, Entry], start: int, size: int) -> None:
    """No overlap, no gap, nothing beyond the end of the file, nothing after the last tensor."""
    end = start
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].offset, item[1].nbytes)):
        if entry.offset != end:
            raise ValueError(
                f"{path}: tensor {name!r:.80} begins at byte {entry.offset} of the file, but the "
                f"data before it ends at {end}; the file is damaged."
            )
        end += entry.nbytes
        if end > size:
            raise ValueError(
                f"{path}: tensor {name!r:.80} ends at byte {end}, but the file at {size}; "
                "it is cut off: download or copy it again."
            )
    if end != size:
        raise ValueError(f"{path}: the last tensor ends at byte {end}, but the file at {size}.")


def _not_safetensors(path: Path, prefix: bytes, size: int) -> str:
    if prefix == b"version ":
        return f"{path}: is a Git LFS pointer and not the weights; fetch them with `git lfs pull`."
    if len(prefix) < 8:
        return f"{path}: has {size} bytes, too few for a safetensors file; download it again."
    return (
        f"{path}: is no safetensors file, or is cut off: it claims a header of "
        f"{int.from_bytes(prefix, 'little')} bytes and has {size} bytes in all."
    )


def _naturals(value: Any) -> TypeGuard[list[int]]:
    return (
        isinstance(value, list)
        and len(value) <= MOST_AXES
        and all(type(n) is int and 0 <= n <= MOST_BYTES for n in value)
    )
