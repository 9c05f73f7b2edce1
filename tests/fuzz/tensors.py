"""safetensors files, and .npz files for `compare --against`.

Right is what the packages read, `safetensors` and NumPy, each number of it; of an .npz, every
station in the shape that the model's own has.
"""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from pathlib import Path

import numpy as np
import safetensors.numpy

from npgpt.compare.dump import ids_in, match_stations, read_stations
from npgpt.files.safetensors_file import read_tensors
from tests.fuzz.changes import change_bytes, change_object
from tests.fuzz.harness import Change, Found, Kind

RNG = np.random.default_rng(0)
TENSORS: dict[str, np.ndarray] = {
    "a": RNG.standard_normal((2, 3)).astype(np.float32),
    "b": np.arange(5),
    "c": np.array([[[1, 0]]], np.uint8),
    "d": RNG.standard_normal(3).astype(np.float16),
    "e": np.zeros((0, 4)),
    "f": np.array(True),
}
STATIONS = {
    "ids": np.array([3, 1, 4]),
    "embed": RNG.standard_normal((3, 4)).astype(np.float32),
    "h.0": RNG.standard_normal((3, 4)),
    "loss": np.array(2.5),
}
HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"
HEADERS = (
    HEADER.replace("(3, 4)", "(1000000000000,)"),
    HEADER.replace("(3, 4)", "(-3, -4)"),
    HEADER.replace("(3, 4)", "(99999999999999999999,)"),
    HEADER.replace("(3, 4)", "(12,)"),
    HEADER.replace("(3, 4)", "(" * 300),
    HEADER.replace("<f4", "|O"),
    HEADER.replace("<f4", "<i4"),
    HEADER.replace("'<f4'", "[('x', '<f4')]"),
    HEADER.replace("False", "True"),
    HEADER.replace("'descr'", "5"),
    "'''" + HEADER,
    "-" * 9000 + "1",
)


def change_tensors(rng: random.Random, folder: Path) -> Change:
    path = folder / "x.safetensors"
    if rng.random() < 0.25:
        return change_bytes(rng, path, rng.choice([8, None]))
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    text, change = change_object(rng, json.loads(data[8:end]))
    raw = text.encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data[end:])
    return change


def check_tensors(found: Found, sound: Found, change: Change, folder: Path) -> None:
    wanted = safetensors.numpy.load((folder / "x.safetensors").read_bytes())
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, name, strict=True)


def change_stations(rng: random.Random, folder: Path) -> Change:
    path = folder / "x.npz"
    if rng.random() < 0.4:
        return change_bytes(rng, path)
    with zipfile.ZipFile(path) as file:
        members = [(name, file.read(name)) for name in file.namelist()]
    n = rng.randrange(len(members))
    name, data = members[n]
    what = rng.choice(
        ["header", "header", "version", "data", "twice", "rename", "zeros", "packing"]
    )
    match what:
        case "header":
            text = rng.choice(HEADERS).encode()
            data = data[:8] + struct.pack("<H", len(text)) + text + data[-48:]
        case "version":
            data = data[:6] + bytes([rng.randrange(5), 0]) + data[8:]
        case "data":
            data = rng.choice([data[:-1], data + b"x", b"", data[:20], b"x" * 99])
        case "twice":
            members.append(members[n])
        case "rename":
            name = rng.choice([*STATIONS, "../x", "\x1b[2J", "x" * 5000, "wte"]) + ".npy"
        case "zeros":
            data = data[:-48] + bytes(60_000_000)
    members[n] = name, data
    packing = rng.choice([0, 8, 12, 14]) if what == "packing" else 8
    with zipfile.ZipFile(path, "w", packing) as file:
        for each, content in members:
            file.writestr(each, content)
    return Change(
        f"{name!r:.40}: {what}", refused=len({name for name, _ in members}) < len(members)
    )


def load_stations(folder: Path) -> Found:
    path = folder / "x.npz"
    dump = read_stations(path)
    ids = ids_in(dump, path)
    matched = match_stations(STATIONS, dump, [], path)
    return {**matched.arrays, "ids": ids}


def check_stations(found: Found, sound: Found, change: Change, folder: Path) -> None:
    with zipfile.ZipFile(folder / "x.npz") as file:
        for name, array in found.items():
            if array is not None:
                wanted = np.load(io.BytesIO(file.read(f"{name}.npy")))
                assert array.shape == STATIONS[name].shape or name == "ids"
                np.testing.assert_array_equal(array, wanted.reshape(array.shape), name)


KINDS = [
    Kind(
        "safetensors",
        lambda folder: safetensors.numpy.save_file(TENSORS, folder / "x.safetensors"),
        change_tensors,
        lambda folder: read_tensors(folder / "x.safetensors"),
        lambda found: found,
        check_tensors,
        finite=False,
    ),
    Kind(
        "npz",
        lambda folder: np.savez(folder / "x.npz", **STATIONS),  # type: ignore[arg-type]
        change_stations,
        load_stations,
        lambda found: found,
        check_stations,
        finite=False,
    ),
]
