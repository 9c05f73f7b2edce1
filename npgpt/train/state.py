"""Everything that a run needs to go on, in one file that appears whole or not at all.

`state.safetensors` holds the parameters, the optimizer's moments, and as metadata the step, the
settings, the configuration and a fingerprint of the data. Because parameters and moments are in the
same file they always belong together, whenever a run is killed. The model for other programs
(`config.json`, `model.safetensors`) is written after it, and again when the run goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from npgpt.files.checkpoint import shortened
from npgpt.files.io import parse_json
from npgpt.files.kinds import check_kinds
from npgpt.files.safetensors_file import read_metadata, read_tensors, write_tensors
from npgpt.files.tensors import Shapes, broken_names
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.models.gpt2.model import GPT2
from npgpt.models.gpt_neo.config import GPTNeoConfig
from npgpt.models.gpt_neo.model import GPTNeo
from npgpt.models.llama.config import LlamaConfig
from npgpt.models.llama.config import param_shapes as llama_shapes
from npgpt.models.llama.families import FAMILIES
from npgpt.models.llama.model import Llama
from npgpt.train.optim import Moments, is_hidden
from npgpt.train.options import Settings, check_ranges, check_together

STATE = "state.safetensors"
PARTS = ("params", "first_moment", "second_moment")
FACTS = {"step": int, "seconds": float, "settings": Mapping[str, Any], "data": str}


class State(NamedTuple):
    """What the file holds."""

    model: GPT2 | Llama
    optimizer: Moments
    step: int  # steps done
    seconds: float  # spent on them, before and after each --resume
    settings: Settings
    data: str  # fingerprint of the token ids


def save_state(folder: Path, state: State) -> None:
    """Write the state in place of the former one.

    Raises OSError if it cannot be written; the former state is then unchanged.
    """
    model, optimizer, *_ = state
    tensors = {
        f"{part}.{name}": array
        for part, arrays in zip(PARTS, (model.params, *optimizer), strict=True)
        for name, array in arrays.items()
    }
    facts = {name: getattr(state, name) for name in FACTS} | {"settings": asdict(state.settings)}
    metadata = {"config": json.dumps(model.config.to_dict()), "facts": json.dumps(facts)}
    write_tensors(folder / STATE, tensors, metadata)


def load_state(folder: Path) -> State:
    """Read what `save_state` wrote, bit by bit. Raises ValueError for a file that is not one."""
    path = folder / STATE
    tensors, metadata = read_tensors(path), read_metadata(path)
    config, facts = (_read(metadata, key, path) for key in ("config", "facts"))
    _check_types(facts, FACTS, f"{path}: 'facts'")
    _check_types(facts["settings"], get_type_hints(Settings), f"{path}: 'settings'")
    check_ranges(facts["settings"], f"{path}: ")
    settings = facts["settings"] = Settings(**facts["settings"])
    check_together(settings, f"{path}: ")
    if not 0 <= facts["step"] <= settings.steps:
        raise ValueError(f"{path}: step {facts['step']} is none of the {settings.steps} --steps.")
    if facts["seconds"] < 0:
        raise ValueError(f"{path}: 'facts': seconds must not be {facts['seconds']}.")
    model, shapes = _empty_model(config, str(path))
    parts = _parts(shapes, settings.optimizer)
    _check_tensors(tensors, parts, settings.dtype, path)
    model.params, first, second = (
        {name: tensors[f"{part}.{name}"] for name in names} for part, names in parts.items()
    )
    if settings.context > model.context:
        raise ValueError(f"{path}: --context {settings.context} exceeds {model.context} positions.")
    return State(model, Moments(first, second), **facts)


def _read(metadata: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    if not isinstance(text := metadata.get(key), str):
        raise ValueError(f"{path} is not the state of a training run: it has no text {key!r}.")
    table = parse_json(text.encode(), f"{path}: {key!r}")
    if not isinstance(table, dict):
        raise ValueError(f"{path}: {key!r} is not a JSON object.")
    return table


def _check_types(table: Mapping[str, Any], types: Mapping[str, Any], where: str) -> None:
    """Raise ValueError unless the table has these names and no others, each of its type."""
    if differing := sorted(table.keys() ^ types.keys()):
        raise ValueError(
            f"{where}: unknown or missing: {shortened(differing)}; resume the run with the npgpt "
            "that began it."
        )
    check_kinds(table, types, where)


def _empty_model(raw: dict[str, Any], where: str) -> tuple[GPT2 | Llama, Shapes]:
    """A model of this configuration without parameters, and their shapes."""
    if raw.get("model_type") in FAMILIES:
        llama = LlamaConfig.from_dict(raw, where)
        return Llama(llama, {}), llama_shapes(llama)
    if raw.get("model_type") == "gpt_neo":
        neo = GPTNeoConfig.from_dict(raw, where)
        return GPTNeo(neo, {}), param_shapes(neo)
    config = GPT2Config.from_dict(raw, where)
    return GPT2(config, {}), param_shapes(config)


def _parts(shapes: Shapes, optimizer: str) -> dict[str, Shapes]:
    """The shapes in each part of the file; Muon has no second moment of hidden matrices."""
    second = {n: s for n, s in shapes.items() if optimizer != "muon" or not is_hidden(n, s)}
    return dict(zip(PARTS, (shapes, shapes, second), strict=True))


def _check_tensors(
    tensors: Mapping[str, np.ndarray], parts: Mapping[str, Shapes], dtype: str, path: Path
) -> None:
    """Raise ValueError unless these are the parameters and moments of a run, all finite."""
    wanted = {
        f"{part}.{name}": shape for part, shapes in parts.items() for name, shape in shapes.items()
    }
    if differing := sorted(wanted.keys() ^ tensors.keys()):
        raise ValueError(f"{path}: unknown or missing tensors: {shortened(differing)}.")
    for name, shape in wanted.items():
        found = tensors[name]
        if (found.shape, found.dtype.name) != (shape, dtype):
            raise ValueError(
                f"{path}: {name!r} is {found.dtype} {list(found.shape)}, but must be "
                f"{dtype} {list(shape)}."
            )
    if broken := broken_names(tensors):
        raise ValueError(f"{path}: NaN or infinite values in {shortened(broken)}.")
    for name, array in tensors.items():
        if name.startswith(PARTS[-1]) and array.min() < 0:
            raise ValueError(f"{path}: {name!r} has values below 0, but is a mean of squares.")


def export_model(folder: Path, model: GPT2 | Llama, dtype: str) -> None:
    """Write the model beside its vocabulary, for everyone else, its numbers as `dtype`.

    Raises ValueError for a number that this dtype cannot hold; OSError if it cannot be written.
    """
    as_dtype = copy(model)
    try:
        with np.errstate(over="raise"):
            as_dtype.params = {n: a.astype(dtype, copy=False) for n, a in model.params.items()}
    except FloatingPointError:
        raise ValueError(
            f"{folder}: the model has numbers that are too large for {dtype}, so it was not "
            "written; resume with another --save-dtype."
        ) from None
    as_dtype.source = folder
    as_dtype.save_pretrained(folder, overwrite=True)
