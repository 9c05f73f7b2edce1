"""A folder with a Hugging Face `bert` <-> (config, params).

Names lose `bert.` and what wrappers put before it, the oldest names of LayerNorm (gamma, beta)
become today's, buffers are dropped, matrices are turned from [out, in] to [in, out], and whatever
is missing or does not fit is refused. Leaves out the next-sentence classifier and other task heads.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npgpt.files.checkpoint import (
    as_float,
    check_saved,
    float_type,
    read_raw_config,
    shortened,
    stored_tensors,
    warn_of_broken,
    write_checkpoint,
)
from npgpt.files.safetensors_file import Entry, map_tensor, read_tensor
from npgpt.files.tensors import WRAPPERS, check_entry
from npgpt.models.bert.config import BERTConfig, param_shapes

BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")  # 0, 1, 2, … and zeros
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
WORDS, DECODER = "embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
BIAS, DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"
COPIES = {DECODER: WORDS, DECODER_BIAS: BIAS}  # what a tied head may store a second time


def load_bert(
    folder: str | os.PathLike[str], *, dtype: DTypeLike = np.float32
) -> tuple[BERTConfig, dict[str, np.ndarray]]:
    """Read `config.json` and `model.safetensors` (or its shards) of a BERT.

    A checkpoint without a pooler or without an MLM head gives parameters without one; half of one
    is refused.

    Args:
        folder: the folder with both.
        dtype: of every parameter returned, float32 or float64, whatever the file has.

    Returns:
        The configuration, and the parameters under the names and shapes of `param_shapes`, matrices
        [in, out], C-contiguous.

    Raises FileNotFoundError for a missing file and ValueError for one that is wrong, naming file
    and tensor. Warns (UserWarning) of tensors that are not used and of values that are not finite.
    """
    dtype, folder = float_type(dtype), Path(folder)
    path = folder / "config.json"
    config = BERTConfig.from_dict(read_raw_config(path), str(path))
    source, stored = stored_tensors(folder)
    found = _renamed(stored, source)
    copies = _take_copies(found, config)
    pooler, mlm_head = (
        any(name.startswith(head) for name in found) for head in ("pooler.", "cls.predictions.")
    )
    shapes = param_shapes(config, pooler=pooler, mlm_head=mlm_head)
    wanted = {n: shape[::-1] if _is_matrix(n) else shape for n, shape in shapes.items()}
    _check_complete(found, wanted, source)
    for name, shape in wanted.items():
        check_entry(name, found[name], shape, source)
    _check_extras(found, wanted, config, source)
    params = {}
    for name in wanted:
        param = as_float(map_tensor(found[name]), dtype)
        params[name] = param.T.copy() if _is_matrix(name) else param
    for name, entry in copies.items():
        _check_copy(name, as_float(read_tensor(entry), dtype), params[COPIES[name]], source)
    warn_of_broken(params, source)
    return config, params


def save_bert(
    folder: str | os.PathLike[str],
    config: BERTConfig,
    params: Mapping[str, np.ndarray],
    **options: Any,
) -> None:
    """Write `config.json` and `model.safetensors` as transformers reads them.

    With an MLM head as BertForMaskedLM has it, else as BertModel; a pooler beside an MLM head is
    saved too, though BertForMaskedLM has no use for it and says so.

    Raises ValueError for parameters that do not fit the configuration, and what
    `npgpt.files.checkpoint.write_checkpoint` raises, which takes the `options`.
    """
    mlm_head, pooler = BIAS in params, "pooler.dense.weight" in params
    shapes = param_shapes(config, pooler=pooler, mlm_head=mlm_head)
    dtype = check_saved(params, shapes)
    tensors = {}
    for name, param in params.items():
        prefix = "bert." if mlm_head and not name.startswith("cls.") else ""
        tensors[prefix + name] = param.T if _is_matrix(name) else param
    if DECODER in params:  # an untied head has a bias of its own there
        tensors[DECODER_BIAS] = params[BIAS]
    kind = "BertForMaskedLM" if mlm_head else "BertModel"
    raw = {**config.to_dict(), "architectures": [kind], "dtype": dtype}
    write_checkpoint(folder, raw, tensors, **options)


def _is_matrix(name: str) -> bool:
    """Whether a parameter is a Linear's matrix, stored [out, in]; tables stay as they are."""
    linears = (".query.weight", ".key.weight", ".value.weight", ".dense.weight")
    return name.endswith(linears)


def _renamed(stored: Mapping[str, Entry], source: Path) -> dict[str, Entry]:
    """Entries under today's bare names; buffers are left out."""
    renamed: dict[str, Entry] = {}
    origins: dict[str, str] = {}
    for origin, entry in stored.items():
        name = ".".join(part for part in origin.split(".") if part not in WRAPPERS)
        name = name.removeprefix("bert.")
        for old, new in OLD_NAMES.items():
            name = re.sub(rf"{re.escape(old)}$", new, name)
        if name in BUFFERS:
            continue
        if name in renamed:
            raise ValueError(f"{source}: {origins[name]!r} and {origin!r} are both {name!r}.")
        renamed[name], origins[name] = entry, origin
    return renamed


def _take_copies(found: dict[str, Entry], config: BERTConfig) -> dict[str, Entry]:
    """Take second copies of tied tensors out of `found`; a lone decoder bias is the bias itself.

    An untied head reads the decoder's own bias; the other one, where it is stored, has no effect.
    """
    if DECODER_BIAS in found and (BIAS not in found or not config.tie_word_embeddings):
        found[BIAS] = found.pop(DECODER_BIAS)
    if not config.tie_word_embeddings:
        return {}
    return {name: found.pop(name) for name in COPIES if name in found}


def _check_copy(name: str, copy: np.ndarray, param: np.ndarray, source: Path) -> None:
    if not np.array_equal(copy, param, equal_nan=True):
        raise ValueError(
            f"{source}: {name!r} differs from {COPIES[name]!r}, but by config.json the two are "
            "tied; set tie_word_embeddings to false to keep the head."
        )


def _check_complete(
    found: Mapping[str, Entry], wanted: Mapping[str, tuple[int, ...]], source: Path
) -> None:
    missing = [name for name in wanted if name not in found]
    if not missing:
        return
    hint = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    if missing == [DECODER]:
        hint = ", but tie_word_embeddings is false; set it to true if the head is the word table"
    shape = list(wanted[missing[0]])
    raise ValueError(f"{source}: lacks {missing[0]!r} of shape {shape}{hint}.")


def _check_extras(
    found: Mapping[str, Entry],
    wanted: Mapping[str, tuple[int, ...]],
    config: BERTConfig,
    source: Path,
) -> None:
    extra = [name for name in found if name not in wanted]
    for name in extra:
        layer = re.match(r"encoder\.layer\.(\d+)\.", name)
        if layer and int(layer[1]) >= config.num_hidden_layers:
            raise ValueError(
                f"{source}: has {name!r}, but num_hidden_layers is {config.num_hidden_layers} in "
                "config.json; set it to the number of layers."
            )
    if extra:
        warnings.warn(
            f"{source}: not part of this BERT and not used: {shortened(extra)}.",
            UserWarning,
            stacklevel=3,
        )
