"""Dumps by other programs: formats, dtypes, shapes, names, and files that are no dumps."""

from __future__ import annotations

import io
import tracemalloc
import zipfile

import numpy as np
import pytest

from npgpt.compare.dump import Dump, ids_in, match_stations, read_stations
from npgpt.files.safetensors_file import write_tensors
from tests.builders.checkpoints import write_raw

OURS = {"ids": np.arange(3), "embed": np.ones((3, 2)), "h.0": np.ones((3, 2))}
PARAMS = ["wte.weight"]


def dump_of(**arrays: np.ndarray) -> Dump:
    return Dump(arrays, dict.fromkeys(arrays, "float64"))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_either_format_in_any_precision(tmp_path, suffix, dtype):
    arrays = {"embed": np.array([[0.5, -2]], dtype), "ids": np.array([7], np.int32)}
    path = tmp_path / f"port{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)  # type: ignore[arg-type]
    else:
        write_tensors(path, arrays)
    dump = read_stations(path)
    assert dump.precision["embed"] == dtype
    np.testing.assert_array_equal(dump.arrays["embed"], [[0.5, -2]])
    np.testing.assert_array_equal(dump.arrays["ids"], [7])


def test_bfloat16_is_widened_and_remembered(tmp_path):
    header = {"embed": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}
    dump = read_stations(write_raw(tmp_path / "a.safetensors", header, b"\x80\x3f\x00\xc0"))
    assert np.asarray(dump.arrays["embed"]).tolist() == [1.0, -2.0]
    assert dump.precision == {"embed": "bfloat16"}


def test_a_compressed_npz(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", embed=np.ones(3))
    assert np.asarray(read_stations(tmp_path / "a.npz").arrays["embed"]).tolist() == [1, 1, 1]


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"port\.npz does not exist"):
        read_stations(tmp_path / "port.npz")


def test_another_suffix(tmp_path):
    with pytest.raises(ValueError, match=r"\.safetensors or \.npz"):
        read_stations(tmp_path / "port.pt")


def broken_zip() -> bytes:
    file = io.BytesIO()
    np.savez(file, embed=np.ones(100))
    return file.getvalue().replace(b"\x00\x00\x00\xf0\x3f", b"\x00\x00\x00\xf1\x3f", 1)


def pickled() -> bytes:
    file = io.BytesIO()
    np.savez(file, embed=np.array([{}]))
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "cut off"), (b"\x93NUMPY", "cut off"), (broken_zip(), "CRC"), (pickled(), "pickle")],
)
def test_a_damaged_npz(tmp_path, content, reason):
    path = tmp_path / "port.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"port\.npz .*{reason}"):
        np.asarray(read_stations(path).arrays["embed"])


def test_what_is_no_number_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", embed=np.ones(2), h=np.array(["x"]))
    with pytest.raises(ValueError, match=r"'h' is stored as <U1"):
        read_stations(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("note.txt", "hello")
    with pytest.raises(ValueError, match=r"a\.npz cannot be read as \.npz .*magic string"):
        read_stations(tmp_path / "a.npz")


@pytest.mark.parametrize("ids", [[5, 6], [[5, 6]], [5.0, 6.0]])
def test_ids_with_and_without_batch_axis_and_as_floats(ids):
    found = ids_in(dump_of(ids=np.array(ids)), "a.npz")
    assert found is not None
    assert found.dtype == np.int64
    assert found.tolist() == [5, 6]


def test_no_ids():
    assert ids_in(dump_of(embed=np.ones(2)), "a.npz") is None


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ([[1, 2], [3, 4]], r"shape \[2, 2\]"),
        (3, r"shape \[\]"),
        ([1, 2.5], "2.5, which is no token id"),
        ([np.nan], "nan, which is no token id"),
    ],
)
def test_ids_that_are_none(ids, reason):
    with pytest.raises(ValueError, match=rf"a\.npz: 'ids' .*{reason}"):
        ids_in(dump_of(ids=np.array(ids)), "a.npz")


def test_names_are_sorted_by_what_they_mean():
    dump = dump_of(
        **{"h.0": np.ones((3, 2)), "loss": np.ones(1), "grad.wte.weight": np.ones(1)},
        ids=np.arange(3),
        hidden=np.ones(1),
    )
    matched = match_stations(OURS, dump, PARAMS, "a.npz")
    assert list(matched.arrays) == ["h.0"]
    assert matched.missing == ["embed"]
    assert matched.unknown == ["hidden"]
    assert matched.unread == ["loss", "grad.wte.weight"]


def test_a_batch_axis_of_one_is_taken_off():
    ours = {"embed": np.ones((1, 2)), "loss": np.ones(())}
    dump = dump_of(embed=np.ones((1, 1, 2)), loss=np.ones(1))
    matched = match_stations(ours, dump, PARAMS, "a.npz")
    assert {name: array.shape for name, array in matched.arrays.items()} == {
        "embed": (1, 2),
        "loss": (),
    }


def test_another_shape_is_refused_with_both():
    with pytest.raises(ValueError, match=r"'embed' has shape \[2, 3\], but .* \[3, 2\]; 1 more"):
        match_stations(OURS, dump_of(embed=np.zeros((2, 3)), **{"h.0": np.zeros(6)}), PARAMS, "a")
    with pytest.raises(ValueError, match=r"'h.0' has shape \[2, 3, 2\], but .* \[3, 2\]\.$"):
        match_stations(OURS, dump_of(**{"h.0": np.zeros((2, 3, 2))}), PARAMS, "a")


@pytest.mark.parametrize(
    ("name", "advice"),
    [("x", "npgpt's are embed, h.0"), ("loss", "add --gradients"), (None, "only nothing")],
)
def test_nothing_in_common(name, advice):
    dump = dump_of() if name is None else dump_of(**{name: np.ones(1)})
    with pytest.raises(ValueError, match=rf"a\.npz has no station to compare, .*{advice}"):
        match_stations(OURS, dump, PARAMS, "a.npz")


def test_a_station_is_unpacked_only_if_its_shape_fits(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", embed=np.zeros((3000, 1000)), x=np.zeros(3_000_000))
    dump = read_stations(tmp_path / "a.npz")
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"'embed' has shape \[3000, 1000\]"):
            match_stations(OURS, dump, PARAMS, "a.npz")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_more_ids_than_any_text_has(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", ids=np.zeros(2_000_000, np.int8))
    with pytest.raises(ValueError, match=r"'ids' has shape \[2000000\], more than"):
        ids_in(read_stations(tmp_path / "a.npz"), "a.npz")
