"""A folder with config.json and safetensors <-> (config, params); `from_pretrained`.

Every tensor is checked against the configuration (`gpt2_tensors.py`) before the first is read. The
other architectures have files like it. Leaves out the vocabulary
(`tokenizer.py`), downloads (`hub.py`), and pickles, which are never opened.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npgpt.checkpoint_files import (
    as_float,
    check_names,
    check_saved,
    float_type,
    read_raw_config,
    stored_tensors,
    warn_of_broken,
    write_checkpoint,
)
from npgpt.gguf_file import find_gguf, load_gguf
from npgpt.gguf_reader import read_gguf_header
from npgpt.gpt2_tensors import is_block, match_gpt2
from npgpt.hub import find_folder
from npgpt.models.gpt2_config import GPT2Config, param_shapes
from npgpt.safetensors_file import map_tensor, read_tensor

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
    `npgpt.gguf_file.load_gguf` do.
    """
    float_type(dtype)  # before a download
    if (path := find_gguf(name)) is not None:
        return load_gguf(path, float_type(dtype))
    folder = find_folder(name, revision)
    match model_type(folder / "config.json"):
        case "llama":
            from npgpt.llama_tensors import load_llama
            from npgpt.models.llama import Llama

            return Llama(*load_llama(folder, float_type(dtype)))
        case "bart" | "marian" | "transformer":
            from npgpt.models.transformer import Transformer
            from npgpt.transformer_tensors import load_transformer

            return Transformer(*load_transformer(folder, dtype=float_type(dtype)))
        case "bert":
            from npgpt.bert_tensors import load_bert
            from npgpt.models.bert import BERT

            return BERT(*load_bert(folder, dtype=float_type(dtype)))
    from npgpt.models.gpt2 import GPT2

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


def load_checkpoint(
    folder: str | os.PathLike[str], *, dtype: DTypeLike = np.float32
) -> tuple[GPT2Config, dict[str, np.ndarray]]:
    """Read `config.json` and `model.safetensors` (or its shards).

    Args:
        folder: the folder with both.
        dtype: of every parameter returned, float32 or float64, whatever the file has.

    Returns:
        The configuration, and the parameters under the names and shapes of `param_shapes`, matrices
        [in, out], C-contiguous. `wte.weight` may have more rows than `vocab_size`: padding.

    Raises FileNotFoundError for a missing file and ValueError for one that is wrong, naming file
    and tensor. Warns (UserWarning) of table sizes that differ from the configuration, of tensors
    that are not used, and of values that are not finite.
    """
    dtype, folder = float_type(dtype), Path(folder)
    config = read_config(folder / "config.json")
    source, stored = stored_tensors(folder)
    match = match_gpt2(config, stored, source)
    params = {}
    for name, entry in match.entries.items():
        param = as_float(map_tensor(entry), dtype)
        params[name] = param.T.copy() if match.out_in and is_block(name) else param
    if match.tied_head:
        check_tied(read_tensor(match.tied_head), params["wte.weight"], source)
    warn_of_broken(params, source)
    return match.config, params


def read_config(path: Path) -> GPT2Config:
    """The configuration in a `config.json`; raises as `load_checkpoint` does."""
    return GPT2Config.from_dict(read_raw_config(path), str(path))


def save_checkpoint(
    folder: str | os.PathLike[str], config: GPT2Config, params: Mapping[str, np.ndarray]
) -> None:
    """Write `config.json` and `model.safetensors` as transformers' GPT2LMHeadModel reads them.

    Both are first written beside and then renamed, so that a full disk or a kill leaves the
    checkpoint that was there. `vocab_size` and `n_positions` are written as the tables have them.

    Raises ValueError for parameters that do not fit the configuration, OSError where the folder
    cannot be written.
    """
    config, dtype = _check_params(config, params)
    tensors = {n if n == "lm_head.weight" else f"transformer.{n}": a for n, a in params.items()}
    write_checkpoint(folder, {**config.to_dict(), "dtype": dtype}, tensors)


def check_tied(head: np.ndarray, wte: np.ndarray, source: Path, name: str = "wte.weight") -> None:
    """Raise ValueError where a stored copy of the table, superfluous by tying, differs from it."""
    if not np.array_equal(as_float(head, wte.dtype), wte, equal_nan=True):
        raise ValueError(
            f"{source}: 'lm_head.weight' differs from '{name}', but by config.json the two are "
            "tied; set tie_word_embeddings to false to keep the head."
        )


def _check_params(config: GPT2Config, params: Mapping[str, np.ndarray]) -> tuple[GPT2Config, str]:
    """The configuration with the tables' sizes, and the one dtype of all parameters."""
    check_names(params, param_shapes(config))
    config = replace(
        config,
        vocab_size=len(params["wte.weight"]),
        n_positions=len(params["wpe.weight"]),
    )
    return config, check_saved(params, param_shapes(config))
