"""Which stored tensor is which parameter of GPT-2.

Names lose what wrappers put before them, mask buffers are dropped, the two tables' rows overrule
config.json, matrices that a Linear stored as [out, in] are told from GPT-2's own [in, out], and
whatever is missing or does not fit is refused. Looks at headers only: no value is read here.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from npgpt.models.gpt2_config import GPT2Config, param_shapes
from npgpt.safetensors_file import Entry
from npgpt.shards import shortened

Shapes = dict[str, tuple[int, ...]]

WRAPPERS = ("module", "_orig_mod")  # of DistributedDataParallel and torch.compile
BUFFERS = (".attn.bias", ".attn.masked_bias")  # the causal mask, stored by old versions
FLOATS = ("F32", "F16", "BF16", "F64")


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


def check_entry(name: str, entry: Entry, expected: tuple[int, ...], source: Path) -> None:
    """Raise ValueError unless the stored tensor has this shape and a dtype of weights."""
    if entry.shape != expected:
        raise ValueError(
            f"{source}: {name!r} has shape {list(entry.shape)}, "
            f"but by config.json it must have {list(expected)}."
        )
    if entry.dtype not in FLOATS:
        raise ValueError(
            f"{source}: {name!r} is stored as {entry.dtype}, but a weight must be one of "
            f"{', '.join(FLOATS)}; save the checkpoint without quantisation."
        )


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
