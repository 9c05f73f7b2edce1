"""Everything that a run needs to go on, in one file that appears whole or not at all.

`state.safetensors` holds the parameters, both moments of the optimizer, and as metadata the step,
the settings, the configuration and a fingerprint of the data. Because parameters and moments are in
the same file they always belong together, whenever a run is killed. The model for other programs
(`config.json`, `model.safetensors`) is written after it, and again when the run goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from npgpt.files.io import parse_json
from npgpt.files.kinds import check_kinds
from npgpt.files.safetensors_file import read_metadata, read_tensors, write_tensors
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.models.gpt2.model import GPT2
from npgpt.models.llama.config import LlamaConfig
from npgpt.models.llama.config import param_shapes as llama_shapes
from npgpt.models.llama.model import Llama
from npgpt.train.optim import AdamWState
from npgpt.train.options import Settings, check_ranges

STATE = "state.safetensors"
PARTS = ("params", "first_moment", "second_moment")
FACTS = {"step": int, "seconds": float, "settings": Mapping[str, Any], "data": str}


class State(NamedTuple):
    """What the file holds."""

    model: GPT2 | Llama
    optimizer: AdamWState
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
    try:
        config, facts = (_read(metadata[key], f"{path}: {key!r}") for key in ("config", "facts"))
        model, names = _empty_model(config, str(path))
        model.params, first, second = (
            {name: tensors[f"{part}.{name}"] for name in names} for part in PARTS
        )
    except KeyError as error:
        raise ValueError(f"{path} is not the state of a training run: {error}.") from None
    _check_types(facts, FACTS, f"{path}: 'facts'")
    _check_types(facts["settings"], get_type_hints(Settings), f"{path}: 'settings'")
    check_ranges(facts["settings"], f"{path}: ")
    facts["settings"] = Settings(**facts["settings"])
    return State(model, AdamWState(first, second), **facts)


def _read(text: str, where: str) -> dict[str, Any]:
    table = parse_json(text.encode(), where)
    if not isinstance(table, dict):
        raise ValueError(f"{where} is not a JSON object.")
    return table


def _check_types(table: Mapping[str, Any], types: Mapping[str, Any], where: str) -> None:
    """Raise ValueError unless the table has these names and no others, each of its type."""
    if differing := sorted(table.keys() ^ types.keys()):
        raise ValueError(
            f"{where}: unknown or missing: {', '.join(differing)}; resume the run with the npgpt "
            "that began it."
        )
    check_kinds(table, types, where)


def _empty_model(raw: dict[str, Any], where: str) -> tuple[GPT2 | Llama, list[str]]:
    """A model of this configuration without parameters, and their names."""
    if raw.get("model_type") == "llama":
        llama = LlamaConfig.from_dict(raw, where)
        return Llama(llama, {}), list(llama_shapes(llama))
    config = GPT2Config.from_dict(raw, where)
    return GPT2(config, {}), list(param_shapes(config))


def export_model(folder: Path, model: GPT2 | Llama, dtype: str) -> None:
    """Write the model beside its vocabulary, for everyone else, its numbers as `dtype`."""
    as_dtype = copy(model)
    as_dtype.params = {n: array.astype(dtype, copy=False) for n, array in model.params.items()}
    as_dtype.source = folder
    as_dtype.save_pretrained(folder, overwrite=True)
