"""`python -m npgpt.vectors --out DIR`: what a port should compute, small, for any language.

The cases are in `inputs.py` (operations and layers), `models.py`, `optimizer.py` and `texts.py`;
here they become files, one a case, and `index.json`, which lists them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from npgpt import cli
from npgpt.files.io import path_text, replacing
from npgpt.files.safetensors_file import write_tensors
from npgpt.vectors.cases import Arrays, Case, as_array, operation_cases
from npgpt.vectors.models import model_cases
from npgpt.vectors.optimizer import optimizer_cases
from npgpt.vectors.texts import text_cases, vocabulary_files

PROG = "npgpt.vectors"
INDEX = "index.json"
# Measured: torch and transformers in float32 were at most 11 times as far from float64 as npgpt is.
ROUNDINGS = 30
LEAST_ROUNDING = float(np.finfo(np.float32).eps)  # relative to the largest number
FLOAT64 = 2.0**-24  # of a tolerance; float64 rounds 2^29 times finer


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    args = _parser().parse_args(argv)
    folder = Path(path_text("--out", args.out))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is there and not empty; name a new folder.")
    count = write_vectors(folder, all_cases())
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{count} cases, {size / 1e6:.1f} MB in {folder}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = cli.new_parser(
        PROG, "Write small cases that a port in any language can be tested with."
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="a new folder")
    return parser


def all_cases() -> Iterator[Case]:
    """Every case there is."""
    yield from operation_cases()
    yield from model_cases()
    yield from optimizer_cases()
    yield from text_cases()


def write_vectors(folder: Path, cases: Iterable[Case]) -> int:
    """Write the files of these cases and, at the end, `index.json`; returns their number."""
    entries = []
    for case in cases:
        arrays, entry = as_file(case)
        path = folder / entry["file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, arrays)
        entries.append(json.dumps(entry, ensure_ascii=False))
    head = {"npgpt": version("npgpt"), "numpy": np.__version__, "float64": FLOAT64}
    for name, text in vocabulary_files().items():
        (folder / "text" / name).write_text(text, encoding="utf-8", newline="\n")
    text = json.dumps(head)[:-1] + ', "cases": [\n' + ",\n".join(entries) + "\n]}\n"
    with replacing(folder / INDEX) as (temporary,):
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return len(entries)


def as_file(case: Case) -> tuple[Arrays, dict[str, Any]]:
    """The arrays of a case's file, and its entry in the index."""
    computed, rounded = case.compute(np.float64), case.compute(np.float32)
    results = computed.outputs | computed.gradients
    roughly = rounded.outputs | rounded.gradients
    tolerances = {
        name: tolerance(array, roughly[name])
        for name, array in results.items()
        if array.dtype.kind == "f"
    }
    arrays = {
        **computed.inputs,
        **{name: as_array(value) for name, value in computed.settings.items()},
        **computed.upstream,
        **results,
        **{f"tolerance.{name}": as_array(value) for name, value in tolerances.items()},
    }
    shapes = {
        part: {name: [*array.shape] for name, array in getattr(computed, part).items()}
        for part in ("inputs", "outputs", "upstream", "gradients")
    }
    entry = {
        "name": case.name,
        "operation": case.name.partition("/")[2].partition(".")[0],
        "formula": case.formula,
        "backward": case.backward,
        "file": f"{case.name}.safetensors",
        "settings": dict(computed.settings),
        **shapes,
        "tolerance": tolerances,
    }
    return arrays, entry


def tolerance(exact: np.ndarray, rounded: np.ndarray) -> float:
    """The largest |Δ| of an array that rounding in float32 explains.

    `ROUNDINGS` times that of npgpt's own pass in float32, or one unit in the last place of the
    largest number; of 1, where all are 0.
    """
    with np.errstate(invalid="ignore"):  # -∞ - -∞
        apart = np.abs(np.where(exact == rounded, 0, exact - rounded))
    largest = np.abs(exact).max(where=np.isfinite(exact), initial=0) or 1.0
    allowed = ROUNDINGS * max(apart.max(initial=0), LEAST_ROUNDING * largest)
    return float(f"{allowed:.2g}")
