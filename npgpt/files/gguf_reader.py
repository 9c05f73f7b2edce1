"""Reads GGUF files: settings by name, where each tensor lies and how it is packed, its numbers.

The header is read here and not by the package `gguf`, which makes two NumPy arrays of every string:
for a vocabulary of 49,152 tokens it took 16.1 s, this takes less than a tenth of a second. The
package (extra `gguf`) unpacks tensors. Leaves out big-endian files and version 1.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np

from npgpt.files.kinds import Id, Kind, check_kinds, is_id

MAGIC, VERSIONS = b"GGUF", (2, 3)
T = TypeVar("T")

# The kinds of value: their codes in the file -> those of `struct`.
NUMBERS = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
FLOAT32, TEXT, ARRAY = 6, 8, 9
MAX_DEPTH = 4  # of arrays in arrays
MOST_VALUES = 1 << 22  # of all settings; the largest vocabularies have a third of it
# Packings that need no unpacking.
PLAIN: dict[int, np.dtype[Any]] = {0: np.dtype("<f4"), 1: np.dtype("<f2")}
# How many numbers of a row form a block, and for each packing the bytes of a block.
PACKINGS: tuple[tuple[int, dict[int, int]], ...] = (
    (1, {0: 4, 1: 2, 24: 1, 25: 2, 26: 4, 27: 8, 28: 8, 30: 2}),
    (32, {2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 20: 18, 39: 17}),
    (64, {40: 36}),
    (128, {41: 18}),
    (256, {10: 84, 11: 110, 12: 144, 13: 176, 14: 210, 15: 292, 16: 66, 17: 74, 18: 98}),
    (256, {19: 50, 21: 110, 22: 82, 23: 136, 29: 56, 34: 54, 35: 66}),
)
BLOCKS = {code: (numbers, size) for numbers, sizes in PACKINGS for code, size in sizes.items()}


KINDS: dict[str, Any] = {
    "general.architecture": str,
    "general.alignment": Annotated[
        int, Kind(lambda v: is_id(v) and v > 0 and v % 8 == 0, "a positive multiple of 8")
    ],
    "split.count": int,
    "tokenizer.ggml.model": str,
    "tokenizer.ggml.pre": str,
    "tokenizer.ggml.tokens": list[str],
    "tokenizer.ggml.merges": list[str],
    "tokenizer.ggml.token_type": list[int],
    "tokenizer.ggml.scores": list[float],
    **{f"tokenizer.ggml.{name}_token_id": Id for name in ("bos", "eos", "eot", "eom", "unknown")},
    **{f"tokenizer.ggml.add_{name}": bool for name in ("bos_token", "eos_token", "space_prefix")},
}


class Packed(NamedTuple):
    """A tensor: its shape as NumPy has it, the code of its packing, its first byte in the file."""

    shape: tuple[int, ...]
    packing: int
    offset: int

    @property
    def size(self) -> int:
        """How many bytes it has."""
        numbers, size = BLOCKS[self.packing]
        return math.prod(self.shape) // numbers * size


class Header(NamedTuple):
    """What `read_gguf_header` found."""

    path: Path
    settings: dict[str, Any]
    tensors: dict[str, Packed]


def read_gguf_header(path: Path) -> Header:
    """Settings and places of the tensors of a `.gguf` file.

    Raises FileNotFoundError, and ValueError for a file that is not GGUF, of another version, cut
    off, or damaged, a setting of the wrong kind, one part of a model in several files, and tensors
    that do not lie one after the other.
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
            settings = _by_name("setting", (reader.setting() for _ in range(n_settings)))
            tensors = _by_name("tensor", (reader.tensor() for _ in range(n_tensors)))
        except struct.error:
            raise ValueError(f"{path} is cut off within its header; download it again.") from None
        except ValueError as error:
            raise ValueError(f"{path} is damaged near byte {reader.at} ({error}).") from None
    check_kinds(settings, KINDS, str(path))
    if (parts := settings.get("split.count", 0)) > 1:
        raise ValueError(
            f"{path} is one of {parts} parts of a model, which must be merged into one file: "
            "llama-gguf-split --merge FIRST_PART MERGED."
        )
    return Header(path, settings, _placed(path, settings, tensors, reader.at))


def read_gguf_tensor(header: Header, name: str) -> np.ndarray:
    """A tensor unpacked, float32 (or float16 as it lies), in the shape the file gives.

    Raises ImportError without the package `gguf`, ValueError for a packing that it cannot unpack.
    """
    tensor = header.tensors[name]
    data = np.memmap(header.path, np.uint8, "r", tensor.offset, (tensor.size,))
    if tensor.packing in PLAIN:
        return data.view(PLAIN[tensor.packing]).reshape(tensor.shape)
    try:
        import gguf
    except ImportError:
        raise ImportError(
            f'{header.path}: {name!r} is packed, and unpacking needs: pip install "npgpt[gguf]"'
        ) from None
    try:
        rows = data.reshape(*tensor.shape[:-1], -1)
        return gguf.dequantize(rows, gguf.GGMLQuantizationType(tensor.packing))
    except (ValueError, KeyError, NotImplementedError) as error:
        raise ValueError(f"{header.path}: {name!r} cannot be unpacked ({error}).") from error


def _by_name(what: str, pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Names and values; ValueError for a name that comes twice."""
    found: dict[str, T] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"it has the {what} {name!r:.80} twice")
        found[name] = value
    return found


def _placed(
    path: Path, settings: Mapping[str, Any], tensors: Mapping[str, Packed], header_end: int
) -> dict[str, Packed]:
    """The tensors, their offsets counted from the file's first byte.

    As in llama.cpp each must begin at the first multiple of the alignment after the one before, so
    that none overlap and nothing lies between them.
    """
    alignment, file_end = settings.get("general.alignment", 32), path.stat().st_size
    start = at = header_end + -header_end % alignment
    placed = {}
    for name, stored in tensors.items():
        tensor = stored._replace(offset=start + stored.offset)
        if tensor.offset != at:
            raise ValueError(
                f"{path}: {name!r} begins at byte {tensor.offset}, but must begin at {at}, where "
                f"by general.alignment {alignment} the tensor before it ends."
            )
        if (end := at + tensor.size) > file_end:
            raise ValueError(
                f"{path}: {name!r} ends at byte {end}, but the file at {file_end}; "
                "it is cut off: download it again."
            )
        placed[name], at = tensor, end + -end % alignment
    return placed


class _Reader:
    """A place in the file that moves on with every value read."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 8
        self.values = 0  # so far

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

    def setting(self) -> tuple[str, Any]:
        return self.text(), self.value(self.number("I"))

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == TEXT:
            return self.text()
        if kind == ARRAY:
            return self.array(self.number("I"), self.number("Q"), depth + 1)
        (number,) = self.numbers(kind, 1)
        # 1e-5 was written, and not the 9.999999747378752e-06 that float32 made of it.
        return float(str(np.float32(number))) if kind == FLOAT32 else number

    def array(self, kind: int, length: int, depth: int) -> list[Any]:
        if depth > MAX_DEPTH:
            raise ValueError(f"arrays lie more than {MAX_DEPTH} deep in each other")
        if kind not in (TEXT, ARRAY):
            return self.numbers(kind, length)
        self.check_room(length, 1)  # each has more than one byte
        return [self.value(kind, depth) for _ in range(length)]

    def numbers(self, kind: int, length: int) -> list[Any]:
        if kind not in NUMBERS:
            raise ValueError(f"values of kind {kind} are unknown")
        size = struct.calcsize("<" + NUMBERS[kind])
        self.check_room(length, size)
        found = list(struct.unpack_from(f"<{length}{NUMBERS[kind]}", self.data, self.at))
        self.at += length * size
        return found

    def check_room(self, length: int, size: int) -> None:
        """Raise unless so many values can be there, of at least so many bytes each."""
        if length * size > len(self.data) - self.at:
            raise struct.error
        self.values += length
        if self.values > MOST_VALUES:
            raise ValueError(f"its settings have more than {MOST_VALUES} values")

    def tensor(self) -> tuple[str, Packed]:
        name, n_axes = self.text(), self.number("I")
        if not 1 <= n_axes <= 4:
            raise ValueError(f"{name!r:.80} has {n_axes} axes, not 1 to 4")
        shape = tuple(reversed([self.number("Q") for _ in range(n_axes)]))
        packing, offset = self.number("I"), self.number("Q")
        if packing not in BLOCKS:
            raise ValueError(f"{name!r:.80} has the unknown packing {packing}")
        if 0 in shape or shape[-1] % BLOCKS[packing][0]:
            raise ValueError(f"{name!r:.80} has shape {list(shape)}, not as packing {packing} asks")
        return name, Packed(shape, packing, offset)
