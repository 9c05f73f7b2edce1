"""The files of a checkpoint, whatever the architecture: config.json, and tensors by name.

Which tensor is which parameter: `tensors.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npgpt.files.atomic import replacing
from npgpt.files.safetensors_file import Entry, read_header, write_in_place
from npgpt.files.shards import read_sharded_header, shortened
from npgpt.files.strict_json import parse_json


def read_raw_config(path: Path) -> dict[str, Any]:
    """The object in a `config.json`, unchecked."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; a model's folder has it beside the weights.")
    raw = parse_json(path.read_bytes(), str(path))
    if not isinstance(raw, dict):
        raise ValueError(f"{path} is not a JSON object.")
    return raw


def float_type(dtype: DTypeLike) -> np.dtype:
    """float32 or float64, however it is called; else ValueError."""
    for choice in (np.dtype(np.float32), np.dtype(np.float64)):
        if dtype is not None and dtype in (choice, choice.type, choice.name):
            return choice
    raise ValueError(f"dtype {dtype!r} is not offered; choose float32 or float64.")


def stored_tensors(folder: Path) -> tuple[Path, dict[str, Entry]]:
    """The file with a folder's weights, or its index, and where each tensor is."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return single, read_header(single)
    if index.is_file():
        return index, read_sharded_header(index)
    if pickles := sorted(path.name for path in folder.glob("pytorch_model*.bin*")):
        raise ValueError(
            f"{folder} has its weights only as a pickle ({pickles[0]}), which could run any code "
            "and is not opened: convert to safetensors as transformers' save_pretrained does."
        )
    files = sorted(path.name for path in folder.glob("*.gguf"))
    hint = f"; to read {files[0]}, name that file" if files else ""
    raise FileNotFoundError(f"{folder} has neither {single.name} nor {index.name}{hint}.")


def write_checkpoint(
    folder: str | os.PathLike[str], raw: dict[str, Any], tensors: Mapping[str, np.ndarray]
) -> None:
    """Write both files of a checkpoint, or leave what was there; `raw` names the `dtype`."""
    folder = Path(folder)
    if "torch_dtype" in raw:  # what transformers 4 called it
        raw["torch_dtype"] = raw["dtype"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"{folder} cannot be made a folder ({error.strerror}).") from error
    with replacing(folder / "model.safetensors", folder / "config.json") as (weights, settings):
        write_in_place(weights, tensors, {"format": "pt"})
        settings.write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")


def check_names(params: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError unless the parameters are the ones that the configuration wants."""
    if differing := sorted(shapes.keys() ^ params.keys()):
        raise ValueError(
            f"Not saved: parameters and configuration disagree about {shortened(differing)}."
        )


def check_saved(params: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The one dtype of all parameters; ValueError unless they are those of the configuration."""
    check_names(params, shapes)
    for name, shape in shapes.items():
        if params[name].shape != shape:
            raise ValueError(
                f"Not saved: {name!r} has shape {list(params[name].shape)}, "
                f"but by the configuration it must have {list(shape)}."
            )
    dtypes = sorted({array.dtype.name for array in params.values()})
    if dtypes not in (["float16"], ["float32"], ["float64"]):
        raise ValueError(
            f"Not saved: parameters are {', '.join(dtypes)}, "
            "not all float32, float64, or float16 to halve the file."
        )
    return dtypes[0]
