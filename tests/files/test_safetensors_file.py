"""Reading gives exact values of every dtype and refuses damage; writing is all or nothing."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from npgpt.files.safetensors_file import (
    Entry,
    read_header,
    read_tensor,
    read_tensors,
    write_tensors,
)
from tests.builders.checkpoints import write_raw


def item(dtype: str, shape: list[int], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


A = item("F32", [2], 0, 8)


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "bool"]
)
def test_reads_what_the_safetensors_package_writes(tmp_path, rng, dtype):
    tensors = {
        "matrix": (rng.standard_normal((3, 4)) * 50).astype(dtype),
        "number": np.ones((), dtype),
        "nothing": np.zeros((0, 3), dtype),
    }
    save_file(tensors, tmp_path / "x.safetensors", metadata={"format": "pt"})
    found = read_tensors(tmp_path / "x.safetensors")
    assert found.keys() == tensors.keys()
    for name, array in tensors.items():
        assert found[name].dtype == dtype
        np.testing.assert_array_equal(found[name], array, strict=True)
        assert found[name].flags.owndata
        assert found[name].flags.writeable
        assert found[name].flags.c_contiguous


def test_bf16_is_read_as_the_same_float32_value(tmp_path):
    values = np.array([1.0, -2.5, 3.140625, 2.0**-133, np.inf, -0.0], np.float32)
    bits = (values.view(np.uint32) >> 16).astype("<u2")
    path = write_raw(tmp_path / "x.safetensors", {"a": item("BF16", [2, 3], 0, 12)}, bits.tobytes())
    found = read_tensors(path)["a"]
    assert found.dtype == np.float32
    assert found.tobytes() == values.tobytes()
    assert found.shape == (2, 3)
    assert found.flags.owndata


def test_the_header_gives_places_without_reading_values(tmp_path):
    header = {"__metadata__": {}, "b": item("F16", [3], 8, 14), "a": A}
    path = write_raw(tmp_path / "x.safetensors", header, bytes(14))
    start = path.stat().st_size - 14
    assert read_header(path) == {
        "a": Entry(path, "F32", (2,), start),
        "b": Entry(path, "F16", (3,), start + 8),
    }


DAMAGED = {
    "cut in the data": ({"a": A}, bytes(5), None, "'a' ends at byte"),
    "bytes left over": ({"a": A}, bytes(9), None, "the last tensor ends at byte"),
    "header of 2^63 bytes": ({"a": A}, bytes(8), 2**63, "a header of 9223372036854775808 bytes"),
    "cut in the header": ({"a": A}, b"", 10**6, "a header of 1000000 bytes"),
    "overlap": ({"a": A, "b": item("F32", [2], 4, 12)}, bytes(12), None, "'b' begins at byte"),
    "gap": ({"a": A, "b": item("F32", [1], 12, 16)}, bytes(16), None, "'b' begins at byte"),
    "short place": ({"a": item("F32", [2], 0, 4)}, bytes(4), None, "'a' (F32 [2]) takes 8 bytes"),
    "stop before start": ({"a": item("F32", [2], 8, 0)}, bytes(8), None, "'a' (F32 [2]) takes 8"),
    "2^80 numbers": ({"a": item("F32", [2**40, 2**40], 0, 8)}, bytes(8), None, "'a' (F32 [1099"),
    "0 numbers of 2^62 rows": (
        {"a": item("F32", [2**62, 2**62, 0], 0, 0)},
        b"",
        None,
        "'a' has the shape [4611",
    ),
    "65 axes": ({"a": item("U8", [1] * 65, 0, 1)}, b"1", None, "'a' lacks a proper"),
    "giant integers": (
        b'{"a":{"dtype":"U8","data_offsets":[0,0],"shape":[0%s]}}' % (b"," + b"9" * 4200) * 99,
        b"",
        None,
        "",
    ),
    "negative size": ({"a": item("F32", [-2], 0, 8)}, bytes(8), None, "'a' lacks a proper"),
    "fractional size": (
        {"a": item("F32", [2.0], 0, 8)},  # type: ignore[list-item]
        bytes(8),
        None,
        "'a' lacks a proper",
    ),
    "no offsets": (
        {"a": {"dtype": "F32", "shape": [2]}},
        bytes(8),
        None,
        "'a' lacks a proper",
    ),
    "no object": ({"a": 8}, bytes(8), None, "'a' lacks a proper"),
    "F8": ({"a": item("F8_E4M3", [8], 0, 8)}, bytes(8), None, "'a' is stored as F8_E4M3"),
    "a name twice": (b'{"a": {}, "a": {}}', b"", None, "the key 'a' stands there twice"),
    "a list": ([], b"", None, "the header is not a JSON object"),
    "no JSON": (b"hello", b"", None, "the header is not valid JSON"),
    "deep JSON": (b"[" * 200_000, b"", None, "the header is not valid JSON"),
    "no UTF-8": (b'{"\xff": 1}', b"", None, "the header is not valid JSON"),
}


@pytest.mark.parametrize(("header", "data", "length", "says"), DAMAGED.values(), ids=DAMAGED)
def test_damage_is_refused_before_anything_is_allocated(tmp_path, header, data, length, says):
    path = write_raw(tmp_path / "x.safetensors", header, data, length)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"x\.safetensors") as caught:
            read_tensors(path)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "has 0 bytes"),
        (b"1234567", "has 7 bytes"),
        (b"<!DOCTYPE html><html>", "is no safetensors file"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 548\n",
            "git lfs pull",
        ),
    ],
)
def test_other_files_are_refused(tmp_path, content, says):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=says):
        read_header(tmp_path / "x.safetensors")


def test_a_header_beyond_the_formats_limit_is_not_read(tmp_path):
    path = write_raw(tmp_path / "x.safetensors", b"", b"", 150_000_000)
    os.truncate(path, 200_000_000)
    with pytest.raises(ValueError, match="a header of 150000000 bytes"):
        read_header(path)


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path):
    path = write_raw(tmp_path / "x.safetensors", {"a": A}, bytes(8))
    entry = read_header(path)["a"]
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(ValueError, match="became shorter"):
        read_tensor(entry)


def test_the_safetensors_package_reads_what_is_written(tmp_path, rng):
    turned = rng.standard_normal((3, 4)).astype(np.float32).T
    tensors = {
        "turned": turned,
        "ids": np.arange(3),
        "loss": np.array(2.5),
        "none": np.zeros((0, 2)),
    }
    write_tensors(tmp_path / "x.safetensors", tensors, {"text": "我想"})
    found = load_file(tmp_path / "x.safetensors")
    assert found.keys() == tensors.keys()
    for name, array in tensors.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    assert os.listdir(tmp_path) == ["x.safetensors"]  # noqa: PTH208


def test_a_written_file_is_as_public_as_any_other(tmp_path):
    (tmp_path / "other").touch()
    write_tensors(tmp_path / "x.safetensors", {"a": np.zeros(2)})
    assert (tmp_path / "x.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_dtype_the_format_lacks_is_refused_and_nothing_left_behind(tmp_path):
    with pytest.raises(ValueError, match="'z' has dtype complex128"):
        write_tensors(tmp_path / "x.safetensors", {"a": np.zeros(2), "z": np.zeros(2, complex)})
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_named(tmp_path):
    path = Path(tmp_path, "none", "x.safetensors")
    with pytest.raises(OSError, match=r"x\.safetensors could not be written \(No such file"):
        write_tensors(path, {"a": np.zeros(2)})
