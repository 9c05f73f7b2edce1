"""What a training run goes on from: its state, its log, its ids.

Right is: the step and the parameters that the file has, in the sound file's shapes; the very ids of
the text, whatever the cache says; a log whose every row has a step.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from npgpt.files.safetensors_file import read_metadata, read_tensors, write_tensors
from npgpt.train.log import LOG, open_log, write_row
from npgpt.train.setup import IDS, prepare
from npgpt.train.state import STATE
from tests.fuzz.changes import change_folder, change_object
from tests.fuzz.harness import Change, Found, Kind

SETTINGS = {"n_layer": 1, "n_head": 1, "n_embd": 4, "context": 4, "batch_size": 2, "steps": 3}


def make(folder: Path) -> None:
    text = folder.with_name("text.txt")  # not changed, and not copied
    text.write_text("the cat sat on a mat " * 20, encoding="utf-8")
    run = prepare(folder, {**SETTINGS, "data": str(text)}, resume=False)
    run.save(2, 1.5)
    with open_log(folder, 0) as log:
        for step in (1, 2):
            write_row(log, [step, 8 * step, 1e-3, 0.5, 5.5, None, None, step / 2])


def change(rng: random.Random, folder: Path) -> Change:
    if rng.random() < 0.4:
        return change_folder(STATE, LOG, LOG, IDS)(rng, folder)
    path = folder / STATE
    tensors, metadata = read_tensors(path), read_metadata(path)
    if rng.random() < 0.3:
        name = rng.choice([*tensors])
        array = tensors.pop(name)
        others = [array[:1], array.T, array.astype("f8"), array.astype("i4"), array * np.nan]
        tensors[name] = rng.choice(others)
        done = Change(f"{name}: another array")
    else:
        key = rng.choice(["facts", "facts", "config"])
        table = json.loads(metadata[key])
        if key == "facts" and rng.random() < 0.5:
            text, done = change_object(rng, table["settings"])
            metadata[key] = json.dumps({**table, "settings": "@"}).replace('"@"', text)
        else:
            metadata[key], done = change_object(rng, table)
    write_tensors(path, tensors, metadata)
    return done


def load(folder: Path) -> Any:
    text = str(folder.with_name("text.txt"))  # where a state says that it is, is no matter here
    run = prepare(folder, {"data": text, "val": None}, resume=True)
    open_log(folder, run.step).close()
    return run


def run(run: Any) -> Found:
    assert run.step >= 0
    logits = run.model([1, 2, 3])
    log = (run.folder / LOG).read_text(encoding="utf-8").splitlines()
    assert all(row.split(",")[0].isdecimal() for row in log[1:])
    return {**run.model.params, "logits": logits, "ids": run.texts.ids, "step": run.step}


def check(found: Found, sound: Found, change: Change, folder: Path) -> None:
    np.testing.assert_array_equal(found["ids"], sound["ids"])
    for name in sound.keys() - {"step"}:
        assert found[name].shape == sound[name].shape, name


KINDS = [Kind("training", make, change, load, run, check)]
