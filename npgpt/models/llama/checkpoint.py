"""Which stored tensor is which parameter of Llama; loading and saving its checkpoints.

Names lose `model.`, tables of rotary angles are dropped, the token table's rows overrule
config.json, matrices are turned from Linear's [out, in] to [in, out], and whatever is missing or
does not fit is refused before a value is read.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from npgpt.files.checkpoint import (
    as_float,
    check_saved,
    check_tied,
    read_raw_config,
    shortened,
    stored_tensors,
    warn_of_broken,
    write_checkpoint,
)
from npgpt.files.safetensors_file import Entry, map_tensor, read_tensor
from npgpt.files.tensors import WRAPPERS, check_entry
from npgpt.models.llama.config import LlamaConfig, param_shapes

HEAD, TABLE = "lm_head.weight", "embed_tokens.weight"


def load_llama(folder: Path, dtype: np.dtype) -> tuple[LlamaConfig, dict[str, np.ndarray]]:
    """Read `config.json` and `model.safetensors` (or its shards) of a Llama.

    Returns the configuration, and the parameters under the names and shapes of `param_shapes`, in
    `dtype`. Raises and warns as `npgpt.models.auto.load_checkpoint` does.
    """
    path = folder / "config.json"
    config = LlamaConfig.from_dict(read_raw_config(path), str(path))
    source, stored = stored_tensors(folder)
    found = _renamed(stored, source)
    wanted = param_shapes(_sized_by_table(config, found, source))
    _check(found, wanted, config, source)
    params = {}
    for name in wanted:
        param = as_float(map_tensor(found[name]), dtype)
        params[name] = param.T.copy() if is_matrix(name, param) else param
    if config.tie_word_embeddings and HEAD in found:
        check_tied(read_tensor(found[HEAD]), params[TABLE], source, TABLE)
    warn_of_broken(params, source)
    return replace(config, vocab_size=min(config.vocab_size, len(params[TABLE]))), params


def save_llama(
    folder: str | os.PathLike[str],
    config: LlamaConfig,
    params: Mapping[str, np.ndarray],
    **options: Any,
) -> None:
    """Write `config.json` and `model.safetensors` as transformers' LlamaForCausalLM reads them.

    Raises ValueError for parameters that do not fit the configuration, and what
    `npgpt.files.checkpoint.write_checkpoint` raises, which takes the `options`.
    """
    if differing := sorted(param_shapes(config).keys() ^ params.keys()):
        raise ValueError(
            f"Not saved: parameters and configuration disagree about {shortened(differing)}."
        )
    config = replace(config, vocab_size=len(params[TABLE]))
    dtype = check_saved(params, param_shapes(config))
    tensors = {
        name if name == HEAD else f"model.{name}": array.T if is_matrix(name, array) else array
        for name, array in params.items()
    }
    write_checkpoint(folder, {**config.to_dict(), "dtype": dtype}, tensors, **options)


def is_matrix(name: str, array: np.ndarray) -> bool:
    """Whether a parameter is stored [out, in]; the tables outside the blocks are [V, d] always."""
    return name.startswith("layers.") and array.ndim == 2


def _renamed(stored: Mapping[str, Entry], source: Path) -> dict[str, Entry]:
    """Entries under the names of `param_shapes`; stored angles, which follow from the
    configuration, are left out."""
    renamed: dict[str, Entry] = {}
    origins: dict[str, str] = {}
    for origin, entry in stored.items():
        unwrapped = ".".join(part for part in origin.split(".") if part not in WRAPPERS)
        name = unwrapped.removeprefix("model.")
        if name.endswith("rotary_emb.inv_freq"):
            continue
        if name in renamed:
            raise ValueError(f"{source}: {origins[name]!r} and {origin!r} are both {name!r}.")
        renamed[name], origins[name] = entry, origin
    return renamed


def _sized_by_table(config: LlamaConfig, found: Mapping[str, Entry], source: Path) -> LlamaConfig:
    """The token table's rows go before vocab_size: a vocabulary is often padded, seldom noted."""
    shape = found[TABLE].shape if TABLE in found else ()
    if len(shape) != 2 or shape[0] == 0:
        return config
    if shape[0] < config.vocab_size:
        warnings.warn(
            f"{source}: {TABLE} has {shape[0]} rows, but vocab_size is {config.vocab_size} in "
            f"config.json; using {shape[0]}.",
            UserWarning,
            stacklevel=4,
        )
    return replace(config, vocab_size=shape[0])


def _check(
    found: Mapping[str, Entry],
    wanted: Mapping[str, tuple[int, ...]],
    config: LlamaConfig,
    source: Path,
) -> None:
    if missing := [name for name in wanted if name not in found]:
        hint = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        if missing[0] == HEAD:
            hint = f", but tie_word_embeddings is not set; set it to true if the head is {TABLE}"
        raise ValueError(
            f"{source}: lacks {missing[0]!r} of shape {_stored(missing[0], wanted)}{hint}."
        )
    for name in wanted:
        check_entry(name, found[name], tuple(_stored(name, wanted)), source)
    extra = [name for name in found if name not in wanted and name != HEAD]
    for name in extra:
        block = re.match(r"layers\.(\d+)\.", name)
        if block and int(block[1]) >= config.num_hidden_layers:
            raise ValueError(
                f"{source}: has {name!r}, but num_hidden_layers is {config.num_hidden_layers} in "
                "config.json; set it to the number of blocks."
            )
        if name.endswith(".bias"):
            raise ValueError(f"{source}: has {name!r}, but npgpt's Llama has no biases.")
    if extra:
        warnings.warn(
            f"{source}: not part of Llama and not used: {shortened(extra)}.",
            UserWarning,
            stacklevel=4,
        )


def _stored(name: str, wanted: Mapping[str, tuple[int, ...]]) -> list[int]:
    """The shape of a parameter in the file."""
    return list(wanted[name][::-1] if name.startswith("layers.") else wanted[name])
