"""What the tests of training share: a text that the suite makes, and small runs on it."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pytest

from npgpt import cli
from npgpt.files.safetensors_file import read_metadata, read_tensors
from npgpt.train import command as train
from npgpt.train import log as training_log

ROOT = Path(__file__).parents[2]
SIZE = ("--n-layer", "2", "--n-head", "2", "--n-embd", "16", "--context", "16")
BATCH = ("--batch-size", "4", "--grad-accum", "2", "--dropout", "0.1", "--sample-every", "0")
EVERY = ("--save-every", "2", "--eval-every", "4", "--eval-batches", "2")
SMALL = (*SIZE, *BATCH, *EVERY)


def story(size: int) -> str:
    """`size` bytes of sentences, the same ones each time, none twice in a row."""
    rng = np.random.default_rng(7)
    who = ("the fox", "a raven", "the miller", "her sister", "Jack", "the queen", "nobody", "a cat")
    did = ("saw", "followed", "forgot", "sang to", "fed", "waited for", "laughed at", "dreamt of")
    where = ("by the well", "in the wood", "at noon", "under the stairs", "in May", "far away")
    text = ""
    while len(text) < size:
        words = (who[rng.integers(8)], did[rng.integers(8)], who[rng.integers(8)])
        text += f"{' '.join(words)} {where[rng.integers(6)]}.\n".capitalize()
    return text[:size]


def write_story(folder: Path, size: int = 3000, name: str = "story.txt") -> Path:
    path = folder / name
    path.write_text(story(size), encoding="utf-8", newline="")
    return path


def run(*arguments: object, draw: bool = False) -> int:
    """`python -m npgpt.train` in this process, with its exit code; the curve is slow to draw."""
    with pytest.MonkeyPatch.context() as patch:
        if not draw:
            patch.setattr(train, "plot_log", lambda folder: True)
        return cli.run(train.PROG, train.main, [str(argument) for argument in arguments])


def weights(folder: Path) -> dict[str, bytes]:
    """Every tensor of the state and of the model, to the last bit."""
    files = [folder / "state.safetensors", folder / "model.safetensors"]
    return {f"{f.name} {n}": a.tobytes() for f in files for n, a in read_tensors(f).items()}


def rows(folder: Path) -> list[dict[str, str]]:
    """`log.csv` as it is."""
    with (folder / "log.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def facts(folder: Path) -> dict[str, Any]:
    """What the state says about the run: step, settings, …"""
    return json.loads(read_metadata(folder / "state.safetensors")["facts"])


def log_without_seconds(folder: Path) -> list[list[str]]:
    lines = (folder / "log.csv").read_text(encoding="utf-8").splitlines()
    return [line.split(",")[:-1] for line in lines]


def at_step(monkeypatch: pytest.MonkeyPatch, step: int, act: Callable[[], object]) -> None:
    """Call `act` in the middle of this step of every run: when its row of the log is written."""
    write_row = training_log.write_row

    def acting(log: TextIO, values: Sequence[object]) -> None:
        write_row(log, values)
        if values[0] == step:
            act()

    monkeypatch.setattr(train, "write_row", acting)


def start(*arguments: object, before: str = "") -> subprocess.Popen[str]:
    """`python -m npgpt.train` as a process of its own, on one thread, after this code."""
    runs = "import runpy; runpy.run_module('npgpt.train', run_name='__main__')"
    code = f"{textwrap.dedent(before)}\n{runs}"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
