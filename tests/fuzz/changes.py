"""Changes to JSON, lines and bytes that any file may suffer."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.fuzz.harness import Change

# Texts that stand for what `json.dumps` does not write.
RAW = {
    "@integer": "9" * 5000,
    "@integers": f"[{','.join(['9' * 4200] * 300)}]",
    "@1e400": "1e400",
    "@nested": "[" * 500 + "]" * 500,
    "@deep": "[" * 9999 + "]" * 9999,
}
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 2**31 - 1, 2**31, 2**63, 10**30),
    *(0.5, -1.5, 1e-300, 1e300, math.nan, -math.inf, *RAW),
    *("", "x", "1", "\x1b[2J", "\ud800", "a\0b", "a\nb", "../../x", "x" * 5000),
    *([], {}, [0], [[]], [None], ["x", 1], {"": None}),
)
NEAR: dict[type, Callable[[Any], list[Any]]] = {
    int: lambda v: [v + 1, v - 1, -v, 2 * v, v * 10**9, v + 0.5, float(v), str(v), bool(v)],
    float: lambda v: [-v, v * 1e6, v / 1e6, str(v), round(v) if math.isfinite(v) else 0],
    bool: lambda v: [not v, int(v), str(v).lower()],
    str: lambda v: [v.upper(), v + " ", v[:-1], v * 1000, v[::-1], v + "\0"],
    list: lambda v: [v * 2, v[:-1], v[::-1], dict(enumerate(v)), v * 9],
    dict: lambda v: [list(v), {**v, "": 0}, dict(reversed(v.items()))],
    type(None): lambda _: [0, False, "", []],
}
Spot = tuple[Any, Any]  # a container, and the key or index of a value in it


def spots(value: Any) -> Iterator[Spot]:
    """Every place in a JSON value."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from spots(value[key])


def change_value(rng: random.Random, root: Any) -> str:
    """Change a value somewhere in `root`, or its name; says what was done."""
    outer = [(root, key) for key in (root if isinstance(root, dict) else range(len(root)))]
    places = outer if rng.random() < 0.5 else list(spots(root))
    if not places:
        return "nothing"
    box, key = rng.choice(places)
    other, name = rng.choice(places)
    value = box[key]
    match rng.choice(["strange", "strange", "near", "near", "remove", "rename", "swap", "wrap"]):
        case "remove":
            del box[key]
            return f"{key!r:.40} removed"
        case "rename" if isinstance(box, dict):
            new = rng.choice(
                [str(key).upper(), f"{key}_", f" {key}", "", "a\nb", "x" * 5000, str(name)]
            )
            box[new] = box.pop(key)
            return f"{key!r:.40} renamed {new!r:.40}"
        case "swap":
            box[key], other[name] = copy.deepcopy(other[name]), copy.deepcopy(value)
            return f"{key!r:.40} and {name!r:.40} exchanged"
        case "wrap":
            box[key] = [value]
        case "near":
            box[key] = rng.choice(NEAR[type(value)](value))
        case _:
            box[key] = copy.deepcopy(rng.choice(STRANGE))
    return f"{key!r:.40}: {value!r:.40} -> {box[key]!r:.40}"


def json_text(value: Any) -> str:
    """As a file has it, `RAW` included."""
    text = json.dumps(value)
    for mark, raw in RAW.items():
        text = text.replace(f'"{mark}"', raw)
    return text


def change_object(rng: random.Random, root: dict[str, Any]) -> tuple[str, Change]:
    """The text of a JSON object with one or two changes."""
    if rng.random() < 0.1:
        match rng.randrange(3):
            case 0:
                root["an_unknown_key"] = rng.choice(STRANGE)
                change = Change(f"unknown key {root['an_unknown_key']!r:.40}", keeps=True)
            case 1:
                root = dict(rng.sample([*root.items()], len(root)))
                change = Change("other order", keeps=True)
            case _:
                return json.dumps(root, indent=3), Change("other spaces", keeps=True)
        return json_text(root), change
    if root and rng.random() < 0.05:
        key = rng.choice([*root])
        text = f"{{{json.dumps(key)}: {json_text(rng.choice(STRANGE))}, {json_text(root)[1:]}"
        return text, Change(f"{key!r} twice", refused=True)
    done = [change_value(rng, root) for _ in range(rng.choice([1, 1, 2]))]
    return json_text(root), Change("; ".join(done))


def change_json(rng: random.Random, path: Path) -> Change:
    """Change a JSON file."""
    if rng.random() < 0.1:
        return change_bytes(rng, path)
    text, change = change_object(rng, json.loads(path.read_bytes()))
    path.write_text(text, encoding="utf-8")
    return change._replace(what=f"{path.name}: {change.what}", part=path.name)


def change_lines(rng: random.Random, path: Path) -> Change:
    """Change a text file whose lines mean something."""
    lines = path.read_bytes().splitlines()
    n, m = rng.randrange(len(lines)), rng.randrange(len(lines))
    line = lines[n]
    strange = (
        b"",
        b" ",
        b"\xff",
        b"a\0b",
        b"\x1b[2J",
        b"x" * 200_000,
        b'"',
        b"-1,,1e999",
        b"\xef\xbb\xbf",
    )
    match rng.choice(["twice", "swap", "remove", "mark", "ends", "strange", "strange", "longer"]):
        case "twice":
            lines.insert(m, line)
        case "swap":
            lines[n], lines[m] = lines[m], line
        case "remove":
            del lines[n]
        case "mark":
            lines[0] = b"\xef\xbb\xbf" + lines[0]
        case "ends":
            lines = [each + b"\r" for each in lines]
        case "longer":
            lines[n] = line + rng.choice([b" ", b" x", b",", b"," * 99, *strange])
        case _:
            lines[n] = rng.choice(strange)
    path.write_bytes(b"\n".join(lines) + rng.choice([b"\n", b"\n", b"\n", b""]))
    return Change(f"{path.name}: lines {n} and {m}", part=path.name)


def change_bytes(rng: random.Random, path: Path, within: int | None = None) -> Change:
    """Change some of the first `within` bytes of any file."""
    data = bytearray(path.read_bytes())
    end = min(within or len(data), len(data))
    at = rng.randrange(end) if end else 0
    size = rng.choice([1, 4, 8, 100])
    what = rng.choice(["flip", "flip", "number", "number", "cut", "insert", "remove", "empty"])
    match what:
        case "flip" if data:
            data[at] ^= 1 << rng.randrange(8)
        case "number":
            number = rng.choice([0, 1, 2**16, 2**31, 2**32 - 1, 2**60, 2**63, 2**64 - 1])
            data[at : at + 8] = number.to_bytes(8, "little")[: rng.choice([4, 8])]
        case "cut":
            del data[at:]
        case "insert":
            data[at:at] = rng.choice([bytes(size), data[:size], b"\xff" * size])
        case "remove":
            del data[at : at + size]
        case _:
            data = bytearray(rng.choice([b"", bytes(size), b"[" * 100_000, b"\xef\xbb\xbf" + data]))
    path.write_bytes(data)
    return Change(f"{path.name}: {what} at byte {at}", part=path.name)


def change_file(rng: random.Random, path: Path) -> Change:
    """Change a file as its suffix asks for."""
    change = {".json": change_json, ".txt": change_lines, ".csv": change_lines}
    return change.get(path.suffix, change_bytes)(rng, path)


def change_folder(*names: str) -> Callable[[random.Random, Path], Change]:
    """Change one of these files, or now and then remove it or put another in its place."""

    def change(rng: random.Random, folder: Path) -> Change:
        path = folder / rng.choice(names)
        if rng.random() > 0.03:
            return change_file(rng, path)
        others = sorted(each for each in folder.iterdir() if each != path)
        path.unlink()
        if others and rng.random() < 0.5:
            path.write_bytes(rng.choice(others).read_bytes())
        return Change(f"{path.name}: removed, or another file", part=path.name)

    return change
