"""Which stored tensor is which parameter of GPT-2.

Names lose what wrappers put before them, mask buffers are dropped, the two tables' rows overrule
config.json, matrices that a Linear stored as [out, in] are told from GPT-2's own [in, out], and
whatever is missing or does not fit is refused. Looks at headers only: no value is read here.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from npgpt.files.checkpoint import (
    as_float,
    check_names,
    check_saved,
    check_tied,
    float_type,
    read_raw_config,
    shortened,
    stored_tensors,
    warn_of_broken,
    write_checkpoint,
)
from npgpt.files.safetensors_file import Entry, map_tensor, read_tensor
from npgpt.files.tensors import WRAPPERS, check_entry
from npgpt.models.gpt2.config import GPT2Config, param_shapes

Shapes = dict[str, tuple[int, ...]]

BUFFERS = (".attn.bias", ".attn.masked_bias")  # the causal mask, stored by old versions


class Match(NamedTuple):
    """What `match_gpt2` found."""

    config: GPT2Config  # with the sizes of the stored tables
    entries: dict[str, Entry]  # every parameter's, in the order of `param_shapes`
    out_in: bool  # the blocks' matrices are stored [out, in]
    tied_head: Entry | None  # a stored copy of wte.weight, which tying makes superfluous


def match_gpt2(config: GPT2Config, stored: Mapping[str, Entry], source: Path) -> Match:
    """Find every parameter of `config` among the stored tensors; `source` names the file in errors.

    Raises ValueError, one sentence, for names that clash, tensors missing, misshapen, of a wrong
    dtype, or of blocks beyond `n_layer`. Warns of table sizes unlike `config`'s and of tensors that
    GPT-2 has no use for.
    """
    found = _renamed(stored, source)
    config, wanted = _sized_by_tables(config, found, source)
    out_in = _stored_out_in(found, wanted, source)
    _check_complete(found, wanted, source)
    for name, shape in wanted.items():
        check_entry(name, found[name], shape[::-1] if out_in and is_block(name) else shape, source)
    _check_extras(found, wanted, config, source)
    head = found.get("lm_head.weight") if config.tie_word_embeddings else None
    return Match(config, {name: found[name] for name in wanted}, out_in, head)


def is_block(name: str) -> bool:
    """Whether a parameter belongs to a block; matrices outside are tables, never transposed."""
    return name.startswith("h.")


def _renamed(stored: Mapping[str, Entry], source: Path) -> dict[str, Entry]:
    """Entries under GPT-2's bare names; mask buffers are left out."""
    renamed: dict[str, Entry] = {}
    origins: dict[str, str] = {}
    prefixed: dict[bool, str] = {}
    for origin, entry in stored.items():
        unwrapped = ".".join(part for part in origin.split(".") if part not in WRAPPERS)
        name = re.sub(r"^(transformer\.)+", "", unwrapped)
        if name.endswith(BUFFERS):
            continue
        if name in renamed:
            raise ValueError(f"{source}: {origins[name]!r} and {origin!r} are both {name!r}.")
        if name.split(".")[0] in ("wte", "wpe", "h", "ln_f"):
            prefixed[name != unwrapped] = origin
        renamed[name], origins[name] = entry, origin
    if len(prefixed) == 2:
        raise ValueError(
            f"{source}: {prefixed[True]!r} has the prefix `transformer.`, but {prefixed[False]!r} "
            "has not; two checkpoints seem to be mixed: keep one."
        )
    return renamed


def _sized_by_tables(
    config: GPT2Config, stored: Mapping[str, Entry], source: Path
) -> tuple[GPT2Config, Shapes]:
    """Trust the two tables' rows over config.json: a vocabulary is often padded, seldom noted."""
    rows = _rows(stored, "wte.weight", config.vocab_size)
    positions = _rows(stored, "wpe.weight", config.n_positions)
    if rows < config.vocab_size:
        _warn_of_size(source, "wte.weight", rows, "vocab_size", config.vocab_size)
    if positions != config.n_positions:
        _warn_of_size(source, "wpe.weight", positions, "n_positions", config.n_positions)
    as_stored = replace(config, vocab_size=rows, n_positions=positions)
    return replace(as_stored, vocab_size=min(rows, config.vocab_size)), param_shapes(as_stored)


def _rows(stored: Mapping[str, Entry], name: str, otherwise: int) -> int:
    shape = stored[name].shape if name in stored else ()
    return shape[0] if len(shape) == 2 and shape[0] > 0 else otherwise


def _warn_of_size(source: Path, table: str, rows: int, key: str, said: int) -> None:
    warnings.warn(
        f"{source}: {table} has {rows} rows, but {key} is {said} in config.json; using {rows}.",
        UserWarning,
        stacklevel=5,
    )


def _stored_out_in(stored: Mapping[str, Entry], wanted: Shapes, source: Path) -> bool:
    """Whether the matrices are a Linear's, [out, in].

    The square `attn.c_proj` cannot tell, but `attn.c_attn` [d, 3 d] beside it always can.
    """
    seen: dict[bool, str] = {}
    for name, shape in wanted.items():
        if is_block(name) and name in stored and shape != shape[::-1]:
            if stored[name].shape == shape:
                seen[False] = name
            elif stored[name].shape == shape[::-1]:
                seen[True] = name
    if len(seen) == 2:
        raise ValueError(
            f"{source}: {seen[False]!r} is stored as [in, out], but {seen[True]!r} as [out, in]; "
            "a checkpoint must keep to one of them."
        )
    return True in seen


def _check_complete(stored: Mapping[str, Entry], wanted: Shapes, source: Path) -> None:
    missing = [name for name in wanted if name not in stored]
    if not missing:
        return
    hint = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    if missing[0] == "wte.weight" and "lm_head.weight" in stored:
        hint += "; lm_head.weight cannot stand in for it"
    if missing[0] == "lm_head.weight":
        hint = ", but tie_word_embeddings is false; set it to true if the head is wte.weight"
    shape = list(wanted[missing[0]])
    raise ValueError(f"{source}: lacks {missing[0]!r} of shape {shape}{hint}.")


def _check_extras(
    stored: Mapping[str, Entry], wanted: Shapes, config: GPT2Config, source: Path
) -> None:
    extra = [name for name in stored if name not in wanted and name != "lm_head.weight"]
    for name in extra:
        block = re.match(r"h\.(\d+)\.", name)
        if block and int(block[1]) >= config.n_layer:
            raise ValueError(
                f"{source}: has {name!r}, but n_layer is {config.n_layer} in config.json; "
                "set it to the number of blocks."
            )
    if extra:
        warnings.warn(
            f"{source}: not part of GPT-2 and not used: {shortened(extra)}.",
            UserWarning,
            stacklevel=4,
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
    folder: str | os.PathLike[str],
    config: GPT2Config,
    params: Mapping[str, np.ndarray],
    **options: Any,
) -> None:
    """Write `config.json` and `model.safetensors` as transformers' GPT2LMHeadModel reads them.

    `vocab_size` and `n_positions` are written as the tables have them.

    Raises ValueError for parameters that do not fit the configuration, and what
    `npgpt.files.checkpoint.write_checkpoint` raises, which takes the `options`.
    """
    config, dtype = _check_params(config, params)
    tensors = {n if n == "lm_head.weight" else f"transformer.{n}": a for n, a in params.items()}
    write_checkpoint(folder, {**config.to_dict(), "dtype": dtype}, tensors, **options)


def _check_params(config: GPT2Config, params: Mapping[str, np.ndarray]) -> tuple[GPT2Config, str]:
    """The configuration with the tables' sizes, and the one dtype of all parameters."""
    check_names(params, param_shapes(config))
    config = replace(
        config,
        vocab_size=len(params["wte.weight"]),
        n_positions=len(params["wpe.weight"]),
    )
    return config, check_saved(params, param_shapes(config))
