"""A folder with config.json and safetensors <-> (config, params); `from_pretrained`.

Every tensor is checked against the configuration (`gpt2_tensors.py`) before the first is read. The
other architectures have files like it. Leaves out the vocabulary
(`tokenizer.py`), downloads (`hub.py`), and pickles, which are never opened.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npgpt.files.checkpoint import (
    float_type,
    read_raw_config,
)
from npgpt.files.gguf_reader import read_gguf_header
from npgpt.files.hub import find_folder, find_gguf
from npgpt.models.bert.checkpoint import load_bert
from npgpt.models.bert.model import BERT
from npgpt.models.gguf import load_gguf
from npgpt.models.gpt2.checkpoint import load_checkpoint
from npgpt.models.gpt2.model import GPT2
from npgpt.models.llama.checkpoint import load_llama
from npgpt.models.llama.config import LlamaConfig
from npgpt.models.llama.model import Llama
from npgpt.models.transformer.checkpoint import load_transformer
from npgpt.models.transformer.model import Transformer

# model_type -> the commands that work on it.
MODEL_TYPES = {
    "gpt2": ("generate", "evaluate", "compare", "describe", "train", "trace"),
    "llama": ("generate", "evaluate", "compare", "describe", "train", "trace"),
    "bert": ("fill_mask", "compare", "describe"),
    "bart": ("translate", "compare", "describe"),
    "marian": ("translate", "compare", "describe"),
    "transformer": ("translate", "compare", "describe"),
}


def from_pretrained(
    name: str | os.PathLike[str], *, dtype: DTypeLike = np.float32, revision: str | None = None
) -> Any:
    """The model in a folder, in `weights/NAME`, on the hub, or in a `.gguf` file.

    A `GPT2`, `Llama`, `BERT` or (bart, marian) `Transformer`, by the `model_type` of its
    config.json or the architecture that the file names. Raises as `load_checkpoint` and
    `npgpt.models.gguf.load_gguf` do.
    """
    float_type(dtype)  # before a download
    if (path := find_gguf(name)) is not None:
        config, params = load_gguf(path, float_type(dtype))
        return Llama(config, params) if isinstance(config, LlamaConfig) else GPT2(config, params)
    folder = find_folder(name, revision)
    match model_type(folder / "config.json"):
        case "llama":
            return Llama(*load_llama(folder, float_type(dtype)))
        case "bart" | "marian" | "transformer":
            return Transformer(*load_transformer(folder, dtype=float_type(dtype)))
        case "bert":
            return BERT(*load_bert(folder, dtype=float_type(dtype)))
    return GPT2(*load_checkpoint(folder, dtype=dtype))


def check_works(name: str | os.PathLike[str], command: str, revision: str | None = None) -> str:
    """The `model_type`; ValueError, before any weights are read, where a command cannot work on it.

    Args:
        command: "trace" for `npgpt.trace`.
    """
    check_kind(kind := kind_of(name, revision), name, command)
    return kind


def check_kind(kind: str, name: str | os.PathLike[str], command: str) -> None:
    """As `check_works`, of a `model_type` that is known already."""
    working = MODEL_TYPES.get(kind, (command,))  # else loading says what is unknown
    if command not in working:
        raise ValueError(
            f"{os.fspath(name)!r} is a {kind}, on which npgpt.{command} does not work; "
            f"what does: {', '.join(f'npgpt.{each}' for each in working)}."
        )


def kind_of(name: str | os.PathLike[str], revision: str | None = None) -> str:
    """The `model_type` of a model, without reading its weights; of a `.gguf` its architecture."""
    if (path := find_gguf(name)) is not None:
        return str(read_gguf_header(path).settings.get("general.architecture"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they come again when the model is loaded
        return model_type(find_folder(name, revision, files="config") / "config.json")


def model_type(path: Path) -> str:
    """The `model_type` in a config.json, "gpt2" if there is none; ValueError for an unknown one."""
    kind = read_raw_config(path).get("model_type", "gpt2")
    if kind not in list(MODEL_TYPES):  # a list takes any JSON value
        raise ValueError(
            f"{path}: model_type is {kind!r}, but npgpt knows {', '.join(MODEL_TYPES)}."
        )
    return str(kind)
