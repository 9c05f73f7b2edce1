"""Files of arrays that are damaged, or ask for more than they hold."""

from __future__ import annotations

import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from npgpt.files.npz_file import read_npz

HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }"


def write(folder: Path, header: str, data: bytes = b"", version: int = 1, packing: int = 0) -> Path:
    text = header.encode()
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    with zipfile.ZipFile(folder / "x.npz", "w", packing) as file:
        file.writestr("a.npy", b"\x93NUMPY" + bytes([version, 0]) + length + text + data)
    return folder / "x.npz"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_read_as_numpy_reads_them(tmp_path, save) -> None:
    arrays = {"a": np.ones((2, 3), "<f2"), "b": np.asfortranarray(np.eye(3)[:2]), "c": np.array(7)}
    save(tmp_path / "x.npz", **arrays)
    found = read_npz(tmp_path / "x.npz")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(found[name], array)


HOSTILE = {
    "10^12 numbers": (HEADER % "(1000000000000,)", 1, 0),
    "more than an index": (HEADER % "(99999999999999999999,)", 1, 8),
    "axes that cancel": (HEADER % "(-1, -1)", 1, 0),
    "keys of two types": (HEADER.replace("'descr'", "5") % "()", 1, 0),
    "an open text": ("'''" + HEADER % "()", 1, 0),
    "nested": ("(" * 900, 1, 0),
    "signs": (HEADER % ("-" * 9000 + "1"), 1, 0),
    "objects": (HEADER.replace("<f4", "|O") % "()", 1, 0),
    "a long header": (" " * 20_000_000, 2, 8),
    "version 3": (HEADER % "()", 3, 0),
    "LZMA": (HEADER % "()", 1, 14),
}


@pytest.mark.parametrize(("header", "version", "packing"), HOSTILE.values(), ids=HOSTILE)
def test_what_asks_for_more_than_there_is(tmp_path, header, version, packing) -> None:
    path = write(tmp_path, header, bytes(4), version, packing)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"x\.npz cannot be read as \.npz") as caught:
            read_npz(path)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)


def test_a_bomb_is_not_unpacked_to_see_its_shape(tmp_path) -> None:
    path = write(tmp_path, HEADER % "(12500000,)", bytes(50_000_000), packing=8)
    tracemalloc.start()
    try:
        assert read_npz(path)["a"].shape == (12_500_000,)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_two_arrays_of_one_name(tmp_path) -> None:
    path = write(tmp_path, HEADER % "()", bytes(4))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("a", b"")
    with pytest.raises(ValueError, match="it has 'a' twice"):
        read_npz(path)
