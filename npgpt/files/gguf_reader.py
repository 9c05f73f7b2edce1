"""Reads GGUF files: settings by name, where each tensor lies and how it is packed, its numbers.

The header is read here and not by the package `gguf`, which makes two NumPy arrays of every string:
for a vocabulary of 49,152 tokens it took 16.1 s, and this 0.57 s. The package (extra `gguf`)
unpacks tensors. Leaves out big-endian files and version 1.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MAGIC, VERSIONS = b"GGUF", (2, 3)
# The kinds of value: their codes in the file -> those of `struct`.
NUMBERS = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
FLOAT32, TEXT, ARRAY = 6, 8, 9
# Packings that need no unpacking.
PLAIN: dict[int, np.dtype[Any]] = {0: np.dtype("<f4"), 1: np.dtype("<f2")}


class Packed(NamedTuple):
    """A tensor: its shape as NumPy has it, the code of its packing, its first byte in the file."""

    shape: tuple[int, ...]
    packing: int
    offset: int


class Header(NamedTuple):
    """What `read_gguf_header` found."""

    path: Path
    settings: dict[str, Any]
    tensors: dict[str, Packed]


def read_gguf_header(path: Path) -> Header:
    """Settings and places of the tensors of a `.gguf` file.

    Raises FileNotFoundError, and ValueError for a file that is not GGUF, of another version, cut
    off, or damaged.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    if path.stat().st_size < 24:
        raise ValueError(f"{path} is no GGUF file: it has only {path.stat().st_size} bytes.")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = _Reader(data)
        magic, version = data[:4], struct.unpack_from("<I", data, 4)[0]
        if magic != MAGIC:
            raise ValueError(f"{path} is no GGUF file: it begins with {magic!r}, not {MAGIC!r}.")
        if version not in VERSIONS:
            raise ValueError(f"{path} is GGUF of version {version}; npgpt reads 2 and 3.")
        try:
            n_tensors, n_settings = reader.number("Q"), reader.number("Q")
            settings = {reader.text(): reader.value(reader.number("I")) for _ in range(n_settings)}
            tensors = dict(reader.tensor() for _ in range(n_tensors))
        except struct.error:
            raise ValueError(f"{path} is cut off within its header; download it again.") from None
        except (UnicodeDecodeError, KeyError) as error:
            raise ValueError(f"{path} is damaged near byte {reader.at} ({error}).") from None
    alignment = settings.get("general.alignment", 32)
    start = -(-reader.at // alignment) * alignment
    placed = {name: t._replace(offset=start + t.offset) for name, t in tensors.items()}
    return Header(path, settings, placed)


def read_gguf_tensor(header: Header, name: str) -> np.ndarray:
    """A tensor unpacked, float32 (or float16 as it lies), in the shape the file gives.

    Raises ImportError without the package `gguf`, ValueError for an unknown packing or a file that
    is cut off.
    """
    tensor = header.tensors[name]
    if tensor.packing in PLAIN:
        plain = PLAIN[tensor.packing]
        data = _bytes_of(header, name, tensor, math.prod(tensor.shape) * plain.itemsize)
        return data.view(plain).reshape(tensor.shape)
    try:
        import gguf
    except ImportError:
        raise ImportError(
            f"{header.path}: {name!r} is packed, and unpacking needs: pip install 'npgpt[gguf]'"
        ) from None
    try:
        kind = gguf.GGMLQuantizationType(tensor.packing)
        numbers, size = gguf.GGML_QUANT_SIZES[kind]
        data = _bytes_of(header, name, tensor, math.prod(tensor.shape) // numbers * size)
        rows = data.reshape(*tensor.shape[:-1], tensor.shape[-1] // numbers * size)
        return gguf.dequantize(rows, kind)
    except (ValueError, KeyError, NotImplementedError) as error:
        raise ValueError(f"{header.path}: {name!r} cannot be unpacked ({error}).") from error


def _bytes_of(header: Header, name: str, tensor: Packed, size: int) -> np.ndarray:
    """The bytes of a tensor, mapped and not yet read."""
    end = header.path.stat().st_size
    if tensor.offset + size > end:
        raise ValueError(
            f"{header.path}: {name!r} ends at byte {tensor.offset + size}, but the file at {end}; "
            "it is cut off: download it again."
        )
    return np.memmap(header.path, np.uint8, "r", tensor.offset, (size,))


class _Reader:
    """A place in the file that moves on with every value read."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 8

    def number(self, code: str) -> Any:
        value = struct.unpack_from("<" + code, self.data, self.at)[0]
        self.at += struct.calcsize("<" + code)
        return value

    def text(self) -> str:
        length = self.number("Q")
        self.at += length
        if self.at > len(self.data):
            raise struct.error
        return self.data[self.at - length : self.at].decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == TEXT:
            return self.text()
        if kind == ARRAY:
            of, length = self.number("I"), self.number("Q")
            return [self.value(of) for _ in range(length)]
        number = self.number(NUMBERS[kind])
        # 1e-5 was written, and not the 9.999999747378752e-06 that float32 made of it.
        return float(str(np.float32(number))) if kind == FLOAT32 else number

    def tensor(self) -> tuple[str, Packed]:
        name = self.text()
        axes = [self.number("Q") for _ in range(self.number("I"))]
        return name, Packed(tuple(reversed(axes)), self.number("I"), self.number("Q"))
