"""Other implementations of a small model: npgpt itself with one thing done wrong."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from npgpt import cli
from npgpt.compare import command as compare
from npgpt.compare.activations import collect_stations, is_optional
from npgpt.files.safetensors_file import read_tensors, write_tensors
from npgpt.models.bert.model import BERT
from npgpt.models.gpt2.model import GPT2
from npgpt.models.transformer.model import Transformer

# What each reads: ids, or source and target.
TEXTS: dict[type, tuple[np.ndarray, ...]] = {
    GPT2: (np.array([7, 3, 11, 7, 30, 2, 19]),),
    BERT: (np.array([2, 5, 6, 8, 9, 5, 3]),),
    Transformer: (np.array([3, 1, 4, 1, 5]), np.array([6, 11, 7, 2])),
}
SOURCE_AND_TARGET = ("--ids", "3 1 4 1 5", "--target-ids", "6 11 7 2")


def port(
    model: Any, changed: dict[str, np.ndarray] | None = None, dtype: str = "float32", **options: Any
) -> Any:
    """The model with some parameters or options of the configuration changed."""
    params = {name: p.astype(dtype) for name, p in (model.params | (changed or {})).items()}
    return type(model)(replace(model.config, **options), params)


def moved(model: Any, name: str, place: tuple[int, ...], by: float) -> dict[str, np.ndarray]:
    """One number of one tensor moved."""
    param = model.params[name].astype(np.float64)
    param[place] += by
    return {name: param}


def stations_of(model: Any, *, gradients: bool = False) -> dict[str, np.ndarray]:
    """What a port dumps that leaves out all that is optional."""
    stations = collect_stations(model, *TEXTS[type(model)], gradients=gradients)
    return {name: a for name, a in stations.items() if not is_optional(name, model.params)}


def run(*arguments: object) -> tuple[int, str, str]:
    """The command in this process, as a shell would run it: exit code, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(compare.PROG, compare.main, [str(a) for a in arguments])
    return code, out.getvalue(), err.getvalue()


def edited(path: Path, **changes: np.ndarray | None) -> Path:
    """A dump with some arrays replaced, added or (None) removed."""
    arrays = {**read_tensors(path), **changes}
    write_tensors(path, {name: array for name, array in arrays.items() if array is not None})
    return path


def report(folder: Path, stations: dict[str, np.ndarray], *options: str) -> dict[str, Any]:
    """What the command says of these stations, compared with those of the model in the folder."""
    file = folder / "port.npz"
    np.savez(file, **stations)  # type: ignore[arg-type]
    code, out, err = run("--model", folder, "--against", file, "--json", *options)
    assert err == ""
    return {"code": code, **json.loads(out)}
