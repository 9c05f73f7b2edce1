"""Everything that a run needs to go on, in one file that appears whole or not at all.

`state.safetensors` holds the parameters, both moments of the optimizer, and as metadata the step,
the settings, the configuration and a fingerprint of the data. Because parameters and moments are in
the same file they always belong together, whenever a run is killed. The model for everyone else
(`config.json`, `model.safetensors`) is written after it, and again when the run goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

from npgpt.files.safetensors_file import read_metadata, read_tensors, write_tensors
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.models.gpt2.model import GPT2
from npgpt.models.llama.config import LlamaConfig
from npgpt.models.llama.config import param_shapes as llama_shapes
from npgpt.models.llama.model import Llama
from npgpt.train.optim import AdamWState

STATE = "state.safetensors"
PARTS = ("params", "first_moment", "second_moment")


class Saved(NamedTuple):
    """What `load_state` returns; `facts` is what was given to `save_state`."""

    model: GPT2 | Llama
    optimizer: AdamWState
    facts: dict[str, Any]


def save_state(
    folder: Path, model: GPT2 | Llama, optimizer: AdamWState, facts: Mapping[str, Any]
) -> None:
    """Write the state in place of the former one; `facts` is anything that JSON can hold.

    Raises OSError if it cannot be written; the former state is then unchanged.
    """
    tensors = {
        f"{part}.{name}": array
        for part, arrays in zip(PARTS, (model.params, *optimizer), strict=True)
        for name, array in arrays.items()
    }
    metadata = {"config": json.dumps(model.config.to_dict()), "facts": json.dumps(dict(facts))}
    write_tensors(folder / STATE, tensors, metadata)


def load_state(folder: Path) -> Saved:
    """Read what `save_state` wrote, bit by bit. Raises ValueError for a file that is not one."""
    path = folder / STATE
    tensors, metadata = read_tensors(path), read_metadata(path)
    try:
        raw, facts = json.loads(metadata["config"]), json.loads(metadata["facts"])
        model, names = _empty_model(raw, str(path))
        model.params, first, second = (
            {name: tensors[f"{part}.{name}"] for name in names} for part in PARTS
        )
    except (KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not the state of a training run: {error}.") from None
    return Saved(model, AdamWState(first, second), facts)


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
