"""Loads and saves a GPT-2's checkpoint.

Its matrices are [in, out]; files that a Linear wrote have them [out, in], which their shapes tell.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npgpt.files.checkpoint import check_names, check_saved, write_checkpoint
from npgpt.files.tensors import (
    Copy,
    Layout,
    Shapes,
    Stored,
    as_stored,
    find_tensors,
    load_params,
    stored_rows,
)
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.models.settings import read_config

HEAD, TABLE, POSITIONS = "lm_head.weight", "wte.weight", "wpe.weight"
LAYOUT = Layout(
    model="GPT-2",
    prefix="transformer.",
    bare=(HEAD,),
    matrices="",  # none is stored [out, in]
    blocks={"h": "n_layer"},
    buffers=(".attn.bias", ".attn.masked_bias"),  # the causal mask, stored by old versions
    hints={HEAD: f", but tie_word_embeddings is false; set it to true if the head is {TABLE}"},
)
OUT_IN = LAYOUT._replace(matrices=r"h\..*\.c_\w+\.weight")


def load_checkpoint(
    folder: str | os.PathLike[str],
    *,
    dtype: DTypeLike = np.float32,
    cls: type[GPT2Config] = GPT2Config,
    layout: Layout = LAYOUT,
) -> tuple[Any, dict[str, np.ndarray]]:
    """Read `config.json` and `model.safetensors` (or its shards) of a GPT-2.

    Args:
        folder: the folder with both.
        dtype: of every parameter returned, float32 or float64, whatever the file has.
        cls, layout: what a GPT-Neo has in place of these.

    Returns:
        The configuration, with `vocab_size` and `n_positions` as the tables have them, and the
        parameters under the names and shapes of `param_shapes`, matrices [in, out], C-contiguous.
        `wte.weight` may have more rows than `vocab_size`: padding.

    Raises FileNotFoundError for a missing file and ValueError for one that is wrong, naming file
    and tensor. Warns (UserWarning) of table sizes that differ from the configuration, of tensors
    that are not used, and of values that are not finite.
    """
    folder = Path(folder)
    config = read_config(cls, folder / "config.json")
    stored = find_tensors(folder, layout)
    _check_one_prefix(stored)
    rows = stored_rows(stored, TABLE, config, "vocab_size", padded=True)
    config = replace(config, n_positions=stored_rows(stored, POSITIONS, config, "n_positions"))
    shapes = param_shapes(replace(config, vocab_size=rows))
    if layout is LAYOUT and _is_out_in(stored, shapes):
        stored = stored._replace(layout=OUT_IN)
    copies = {HEAD: Copy(TABLE)} if config.tie_word_embeddings else {}
    params = load_params(stored, shapes, config, dtype, copies)
    return replace(config, vocab_size=min(rows, config.vocab_size)), params


def save_checkpoint(
    folder: str | os.PathLike[str],
    config: GPT2Config,
    params: Mapping[str, np.ndarray],
    layout: Layout = LAYOUT,
    **options: Any,
) -> None:
    """Write `config.json` and `model.safetensors` as transformers' GPT2LMHeadModel reads them.

    With the `layout` of a GPT-Neo, as GPTNeoForCausalLM does.

    `vocab_size` and `n_positions` are written as the tables have them.

    Raises ValueError for parameters that do not fit the configuration, and what
    `npgpt.files.checkpoint.write_checkpoint` raises, which takes the `options`.
    """
    check_names(params, param_shapes(config))
    rows, positions = len(params[TABLE]), len(params[POSITIONS])
    config = replace(config, vocab_size=rows, n_positions=positions)
    dtype = check_saved(params, param_shapes(config))
    raw = {**config.to_dict(), "dtype": dtype}
    write_checkpoint(folder, raw, as_stored(params, layout), **options)


def _check_one_prefix(stored: Stored) -> None:
    """Raise ValueError where only a part of the names begins with `transformer.`."""
    prefixed = {
        "transformer" in origin.split("."): origin
        for name, origin in stored.origins.items()
        if name.split(".")[0] in ("wte", "wpe", "h", "ln_f")
    }
    if len(prefixed) == 2:
        raise ValueError(
            f"{stored.source}: {prefixed[True]!r} has the prefix `transformer.`, but "
            f"{prefixed[False]!r} has not; two checkpoints seem to be mixed: keep one."
        )


def _is_out_in(stored: Stored, shapes: Shapes) -> bool:
    """Whether the matrices are a Linear's, [out, in].

    The square `attn.c_proj` cannot tell, but `attn.c_attn` [d, 3 d] beside it always can.
    """
    seen: dict[bool, str] = {}
    for name, shape in shapes.items():
        if OUT_IN.is_matrix(name) and name in stored.entries and shape != shape[::-1]:
            found = stored.entries[name].shape
            if found in (shape, shape[::-1]):
                seen[found != shape] = name
    if len(seen) == 2:
        raise ValueError(
            f"{stored.source}: {seen[False]!r} is stored as [in, out], but {seen[True]!r} as "
            "[out, in]; a checkpoint must keep to one of them."
        )
    return True in seen
