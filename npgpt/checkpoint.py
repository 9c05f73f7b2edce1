"""A folder with config.json and safetensors <-> (config, params); `from_pretrained`.

Every tensor is checked against the configuration (`gpt2_tensors.py`) before the first is read. The
encoder-decoders are loaded and saved by `transformer_tensors.py`, with the tools of this file.
Leaves out the vocabulary (`tokenizer.py`), downloads (`hub.py`), and pickles, which are never
opened.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npgpt.atomic import replacing
from npgpt.gpt2_tensors import is_block, match_gpt2
from npgpt.hub import find_folder
from npgpt.models.gpt2_config import GPT2Config, param_shapes
from npgpt.safetensors_file import Entry, read_header, read_tensor, write_in_place
from npgpt.shards import read_sharded_header, shortened
from npgpt.strict_json import parse_json


def from_pretrained(
    name: str | os.PathLike[str], *, dtype: DTypeLike = np.float32, revision: str | None = None
) -> Any:
    """The model in a folder, in `weights/NAME` or on the hub; raises as `load_checkpoint` does.

    Its class goes by `model_type` in config.json: `GPT2`, or `Transformer` for bart and marian.
    """
    dtype = float_type(dtype)  # before a download
    folder = find_folder(name, revision)
    match read_json_object(folder / "config.json").get("model_type", "gpt2"):
        case "gpt2":
            from npgpt.models.gpt2 import GPT2

            return GPT2(*load_checkpoint(folder, dtype=dtype))
        case "bart" | "marian" | "transformer":
            from npgpt.models.transformer import Transformer
            from npgpt.transformer_tensors import load_transformer

            return Transformer(*load_transformer(folder, dtype=dtype))
        case other:
            raise ValueError(
                f"{folder / 'config.json'}: model_type is {other!r}, but npgpt loads "
                "'gpt2', 'bart', 'marian' and 'transformer'."
            )


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
        param = as_float(read_tensor(entry), dtype)
        params[name] = param.T.copy() if match.out_in and is_block(name) else param
    if match.tied_head:
        _check_tied(read_tensor(match.tied_head), params["wte.weight"], source)
    warn_of_broken(params, source)
    return match.config, params


def read_config(path: Path) -> GPT2Config:
    """The configuration in a `config.json`; raises as `load_checkpoint` does."""
    return GPT2Config.from_dict(read_json_object(path), str(path))


def read_json_object(path: Path) -> dict[str, Any]:
    """The content of a `config.json`, as it stands; raises as `load_checkpoint` does."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; a model's folder has it beside the weights.")
    raw = parse_json(path.read_bytes(), str(path))
    if not isinstance(raw, dict):
        raise ValueError(f"{path} is not a JSON object.")
    return raw


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
    write_checkpoint(Path(folder), config.to_dict(), tensors, dtype)


def write_checkpoint(
    folder: Path, settings: Mapping[str, Any], tensors: Mapping[str, np.ndarray], dtype: str
) -> None:
    """Write both files, `settings` with the dtype added as config.json; see `save_checkpoint`."""
    settings = {**settings, "dtype": dtype}
    if "torch_dtype" in settings:  # what transformers 4 called it
        settings["torch_dtype"] = dtype
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"{folder} cannot be made a folder ({error.strerror}).") from error
    with replacing(folder / "model.safetensors", folder / "config.json") as (weights, config):
        write_in_place(weights, tensors, {"format": "pt"})
        config.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def float_type(dtype: DTypeLike) -> np.dtype:
    """float32 or float64, however it is called; else ValueError."""
    for choice in (np.dtype(np.float32), np.dtype(np.float64)):
        if dtype is not None and dtype in (choice, choice.type, choice.name):
            return choice
    raise ValueError(f"dtype {dtype!r} is not offered; choose float32 or float64.")


def stored_tensors(folder: Path) -> tuple[Path, dict[str, Entry]]:
    """The file (or the index of the shards) and where in it every tensor lies."""
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
    raise FileNotFoundError(f"{folder} has neither {single.name} nor {index.name}.")


def as_float(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The array in the dtype asked for; what float32 cannot hold becomes infinite."""
    with np.errstate(over="ignore"):  # reported as infinite, see `warn_of_broken`
        return array.astype(dtype, copy=False)


def warn_of_broken(params: Mapping[str, np.ndarray], source: Path) -> None:
    """Warn the caller's caller of parameters that are not finite."""
    # min and max are NaN where any value is, and need no second array.
    if broken := [n for n, a in params.items() if not np.isfinite([a.min(), a.max()]).all()]:
        warnings.warn(
            f"{source}: NaN or infinite values in {shortened(broken)}.", UserWarning, stacklevel=3
        )


def _check_tied(head: np.ndarray, wte: np.ndarray, source: Path) -> None:
    if not np.array_equal(as_float(head, wte.dtype), wte, equal_nan=True):
        raise ValueError(
            f"{source}: 'lm_head.weight' differs from 'wte.weight', but by config.json the two are "
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
    return config, check_shapes(params, param_shapes(config))


def check_names(params: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError unless just these parameters are there."""
    if differing := sorted(shapes.keys() ^ params.keys()):
        raise ValueError(
            f"Not saved: parameters and configuration disagree about {shortened(differing)}."
        )


def check_shapes(params: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The one dtype of all parameters; ValueError for several, or for a wrong shape."""
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
