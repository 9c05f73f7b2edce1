"""The .npz file, a zip of arrays as `np.savez` writes it: what it holds, before any of it is read.

`np.load` allocates what a header asks for, so that a few bytes can ask for terabytes, and unpacks
whatever a zip claims to hold. Here whoever knows which shape an array must have looks at it first.
Leaves out pickled objects, whose unpacking runs code, and packings that NumPy does not write.
"""

from __future__ import annotations

import contextlib
import io
import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
LONGEST_HEADER = 1 << 14  # bytes of a member; NumPy takes 10,000
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


@dataclass(frozen=True)
class NpzArray:
    """An array in the file; `np.asarray` reads it, and raises ValueError if it is damaged."""

    path: Path
    member: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        with (
            _explained(self.path),
            zipfile.ZipFile(self.path) as file,
            file.open(self.member) as stream,
        ):
            array = npy.read_array(stream, allow_pickle=False)
            if stream.read(1):  # which also checks the sum over all bytes
                raise ValueError(f"{self.member!r:.80} goes on behind its last number")
            return array.astype(dtype or array.dtype, copy=False)


def read_npz(path: Path) -> dict[str, NpzArray]:
    """Name -> array of every member; ValueError, naming the file, for one that is damaged."""
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is no .npz file, or is cut off; write it again, with np.savez.")
    arrays: dict[str, NpzArray] = {}
    with _explained(path), zipfile.ZipFile(path) as file:
        for member in file.infolist():
            name = member.filename.removesuffix(".npy")
            if name in arrays:
                raise ValueError(f"it has {name!r:.80} twice")
            if member.compress_type not in PACKINGS:
                raise ValueError(f"{name!r:.80} is packed in a way that np.savez does not know")
            with file.open(member) as stream:
                head = stream.read(LONGEST_HEADER)
            arrays[name] = _array(path, member, head)
    return arrays


def _array(path: Path, member: zipfile.ZipInfo, head: bytes) -> NpzArray:
    """The member whose bytes begin like this, if it has as many as its shape takes."""
    name, stream = member.filename, io.BytesIO(head)
    if (version := npy.read_magic(stream)) not in HEADERS:
        raise ValueError(f"{name!r:.80} is an array of version {version}")
    shape, _, dtype = HEADERS[version](stream)
    if dtype.hasobject:
        raise ValueError(f"{name!r:.80} holds pickled objects")
    size = member.file_size - stream.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"{name!r:.80} has another size than its shape {shape!s:.80} takes")
    return NpzArray(path, name, shape, dtype)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever zipfile, zlib and NumPy's reading of a header raise
        raise ValueError(
            f"{path} cannot be read as .npz ({error!s:.300}); write it again."
        ) from error
