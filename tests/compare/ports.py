"""Other implementations of a small GPT-2: npgpt itself with one thing done wrong."""

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
from npgpt.compare.activations import collect_stations
from npgpt.files.safetensors_file import read_tensors, write_tensors
from npgpt.models.gpt2.checkpoint import save_checkpoint
from npgpt.models.gpt2.config import GPT2Config, init_params
from npgpt.models.gpt2.model import GPT2

CONFIG = GPT2Config(
    vocab_size=40,
    n_positions=16,
    n_embd=48,
    n_layer=3,
    n_head=3,
    bos_token_id=None,
    eos_token_id=None,
)
PARAMS = init_params(CONFIG, np.random.default_rng(5))  # GPT-2's own scale: the faults are small
IDS = np.array([7, 3, 11, 7, 30, 2, 19])


def port(
    dtype: str = "float32", changed: dict[str, np.ndarray] | None = None, **options: Any
) -> GPT2:
    """The model with some parameters or options of the configuration changed."""
    params = {name: param.astype(dtype) for name, param in (PARAMS | (changed or {})).items()}
    return GPT2(replace(CONFIG, **options), params)


def moved(name: str, place: tuple[int, ...], by: float) -> dict[str, np.ndarray]:
    """One number of one tensor moved."""
    param = PARAMS[name].astype(np.float64)
    param[place] += by
    return {name: param}


def stations_of(model: GPT2, *, gradients: bool = False) -> dict[str, np.ndarray]:
    return collect_stations(model, IDS, gradients=gradients)


def run(*arguments: object) -> tuple[int, str, str]:
    """The command in this process, as a shell would run it: exit code, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(compare.PROG, compare.main, [str(a) for a in arguments])
    return code, out.getvalue(), err.getvalue()


def edited(path: Path, **changes: np.ndarray | None) -> Path:
    """A dump with some arrays replaced, added or (None) taken away."""
    arrays = {**read_tensors(path), **changes}
    write_tensors(path, {name: array for name, array in arrays.items() if array is not None})
    return path


def report(folder: Path, stations: dict[str, np.ndarray], *options: str) -> dict[str, Any]:
    """What the command says of these stations, laid beside those of CONFIG and PARAMS."""
    save_checkpoint(folder, CONFIG, PARAMS)
    return report_on(folder, stations, *options)


def report_on(folder: Path, stations: dict[str, np.ndarray], *options: str) -> dict[str, Any]:
    """What the command says of these stations, laid beside those of the model in the folder."""
    file = folder / "port.npz"
    np.savez(file, **stations)  # type: ignore[arg-type]
    code, out, err = run("--model", folder, "--against", file, "--json", *options)
    assert err == ""
    return {"code": code, **json.loads(out)}
