"""Headers of GGUF files: what damage or a hostile file can do is refused in one sentence."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npgpt.files.gguf_reader import (
    BLOCKS,
    MAX_DEPTH,
    MOST_VALUES,
    read_gguf_header,
    read_gguf_tensor,
)
from tests.builders.gguf import write_gguf

ONES = np.ones(3, np.float32)


def nested(depth: int) -> tuple[int, bytes]:
    """An array in an array in an array …"""
    return 9, struct.pack("<IQ", 9, 1) * (depth - 1) + struct.pack("<IQI", 4, 1, 7)


def refuses(path: Path, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        read_gguf_header(path)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value)) < len(str(path)) + 250


@pytest.mark.parametrize("alignment", [8, 16, 24, 32, 64, 4096])
@pytest.mark.parametrize("shift", range(0, 32, 5))
def test_alignments(tmp_path, alignment, shift) -> None:
    settings = {"general.alignment": alignment, "x": "x" * shift}
    tensors = {"a": ONES, "b": np.arange(20, dtype=np.float32), "c": 2 * ONES}
    header = read_gguf_header(write_gguf(tmp_path / "x.gguf", settings, tensors, 3, alignment))
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(read_gguf_tensor(header, name), tensor)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        *(
            ("general.alignment", value, "general.alignment is .*, but must be a positive multiple")
            for value in (0, (5, struct.pack("<i", -32)), True, "32", [32], 32.0, 12, 4)
        ),
        ("general.architecture", [["llama"]], r"is \[\['llama'\]\], but must be a text"),
        ("split.count", "2", "split.count is '2', but must be an integer"),
        (
            "tokenizer.ggml.token_type",
            33,
            "token_type is 33, but must be an array in which each value is an integer",
        ),
        (
            "tokenizer.ggml.token_type",
            ["a"],
            "but must be an array in which each value is an integer",
        ),
        (
            "tokenizer.ggml.tokens",
            [["a"], ["b"]],
            "but must be an array in which each value is a text",
        ),
        ("tokenizer.ggml.tokens", [1] * 1000, "but must be an array in which each value is a text"),
        ("tokenizer.ggml.pre", [1], "tokenizer.ggml.pre is .*, but must be a text"),
        ("tokenizer.ggml.eos_token_id", "2", "eos_token_id is '2', but must be the id"),
        ("tokenizer.ggml.bos_token_id", True, "bos_token_id is True, but must be the id"),
        ("x", nested(MAX_DEPTH + 1), "arrays lie more than 4 deep"),
        ("x", nested(3000), "arrays lie more than 4 deep"),
        ("x", (13, b""), "values of kind 13 are unknown"),
        ("x", (9, struct.pack("<IQ", 13, 1)), "values of kind 13 are unknown"),
        ("x", (8, struct.pack("<Q", 2**63)), "is cut off within its header"),
        ("x", (8, struct.pack("<Q", 1) + b"\xff"), "is damaged near byte"),
        *(
            ("x", (9, struct.pack("<IQ", kind, length)), "is cut off within its header")
            for kind in (0, 4, 7, 8, 9, 12)
            for length in (2**10, 2**32, 2**64 - 1)
        ),
    ],
)
def test_settings_that_cannot_be(tmp_path, key, value: Any, sentence) -> None:
    refuses(write_gguf(tmp_path / "x.gguf", {key: value}, {"a": ONES}), sentence)


def test_arrays_in_arrays(tmp_path) -> None:
    path = write_gguf(tmp_path / "x.gguf", {"x": nested(MAX_DEPTH), "y": [[1.5, 2.5], []]}, {})
    assert read_gguf_header(path).settings == {"x": [[[[7]]]], "y": [[1.5, 2.5], []]}


@pytest.mark.parametrize("what", ["tensor", "setting"])
def test_a_name_that_comes_twice(tmp_path, what) -> None:
    path = write_gguf(
        tmp_path / "x.gguf", {"setting-1": 1, "setting-2": 2}, {"tensor-1": ONES, "tensor-2": ONES}
    )
    path.write_bytes(path.read_bytes().replace(f"{what}-2".encode(), f"{what}-1".encode()))
    refuses(path, f"has the {what} '{what}-1' twice")


def tensor_entry(shape: tuple[int, ...], packing: int, offset: int) -> bytes:
    return struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, packing, offset)


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (((3,), 0, 0), r"'b' begins at byte \d+, but must begin at"),  # over the first
        (((3,), 0, 8), r"'b' begins at byte \d+, but must begin at"),
        (((3,), 0, 36), r"'b' begins at byte \d+, but must begin at"),
        (((3,), 0, 64), r"'b' begins at byte \d+, but must begin at"),  # a gap
        (((3,), 0, 2**64 - 32), r"'b' begins at byte \d+, but must begin at"),
        (((33,), 0, 32), r"'b' ends at byte \d+, but the file at \d+; it is cut off"),
        (((2**62, 2**62, 2**62, 2**62), 0, 32), r"'b' ends at byte \d+, but the file"),
        (((0,), 0, 32), r"'b' has shape \[0\], not as packing 0 asks"),
        (((33, 2), 8, 32), r"'b' has shape \[2, 33\], not as packing 8 asks"),
        (((3,), 4, 32), "'b' has the unknown packing 4"),
        (((), 0, 32), "'b' has 0 axes, not 1 to 4"),
        (((1,) * 5, 0, 32), "'b' has 5 axes, not 1 to 4"),
    ],
)
def test_tensors_that_cannot_be(tmp_path, entry, sentence) -> None:
    """All in files of the same size."""
    path = write_gguf(tmp_path / "x.gguf", {}, {"a": ONES, "b": ONES})
    old, new = b"b" + tensor_entry((3,), 0, 32), b"b" + tensor_entry(*entry)
    start, rest = path.read_bytes().split(old)
    head = start + new
    path.write_bytes(head + bytes(-len(head) % 32) + rest[-64:])
    refuses(path, sentence)


@pytest.mark.parametrize("at", [8, 16])
def test_more_tensors_or_settings_than_there_are(tmp_path, at) -> None:
    path = write_gguf(tmp_path / "x.gguf", {"x": 1}, {"a": ONES})
    data = path.read_bytes()
    path.write_bytes(data[:at] + struct.pack("<Q", 2**60) + data[at + 8 :])
    refuses(path, "is cut off within its header|is damaged")


def test_arrays_beyond_any_vocabulary(tmp_path) -> None:
    half = 9, struct.pack("<IQ", 0, MOST_VALUES // 2) + bytes(MOST_VALUES // 2)
    refuses(
        write_gguf(tmp_path / "x.gguf", {"x": half, "y": half, "z": 1}, {}), "settings have more"
    )


@pytest.mark.parametrize("part", [0, 1])
def test_one_of_several_parts(tmp_path, part) -> None:
    settings = {"split.no": part, "split.count": 2, "split.tensors.count": 21}
    refuses(
        write_gguf(tmp_path / "x.gguf", settings, {"a": ONES}),
        "is one of 2 parts of a model, .* llama-gguf-split --merge",
    )
    whole = write_gguf(tmp_path / "x.gguf", {**settings, "split.count": 0}, {"a": ONES})
    assert list(read_gguf_header(whole).tensors) == ["a"]


def test_sizes_of_blocks_are_those_of_the_package(gguf) -> None:
    """All but Q8_1, which lies in no file and which llama.cpp packs otherwise."""
    import gguf as package

    sizes = {int(kind): size for kind, size in package.GGML_QUANT_SIZES.items()}
    assert {code: sizes.get(code, size) for code, size in BLOCKS.items()} == BLOCKS
    assert BLOCKS.keys() >= sizes.keys() - {9}
