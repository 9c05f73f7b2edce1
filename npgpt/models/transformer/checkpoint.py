"""A folder with a `bart` or `marian` checkpoint, or one of the paper's model <-> (config, params).

Names lose what wrappers put before them; a Linear's [out, in] becomes [in, out]; a table that is
stored twice must be the same twice; whatever is missing or does not fit is refused before a value
is read. GPT-2's part is in `checkpoint.py` and `gpt2_tensors.py`.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npgpt.files.checkpoint import (
    GENERATION_CONFIG,
    as_float,
    check_saved,
    read_raw_config,
    shortened,
    stored_tensors,
    warn_of_broken,
    write_checkpoint,
)
from npgpt.files.io import parse_json
from npgpt.files.safetensors_file import Entry, map_tensor, read_tensor
from npgpt.files.tensors import WRAPPERS, check_entry
from npgpt.models.transformer.config import TransformerConfig
from npgpt.models.transformer.params import is_matrix, param_shapes
from npgpt.ops.sinusoids import sinusoids_in_halves

TABLES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
SINES = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")
# What transformers 5 keeps beside config.json, and older versions in it.
GENERATION = (
    "num_beams",
    "length_penalty",
    "early_stopping",
    "max_length",
    "bad_words_ids",
    "renormalize_logits",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
)


def load_transformer(
    folder: Path, *, dtype: np.dtype
) -> tuple[TransformerConfig, dict[str, np.ndarray]]:
    """Read config.json, generation_config.json if there is one, and the weights.

    Args:
        dtype: of every parameter returned, float32 or float64, whatever the file has.

    Returns:
        The configuration, and the parameters under the names and shapes of `param_shapes`, matrices
        [in, out], C-contiguous.

    Raises FileNotFoundError for a missing file and ValueError for one that is wrong, naming file
    and tensor. Warns (UserWarning) of tensors that are not used and of values that are not finite.
    """
    config = TransformerConfig.from_dict(_raw_config(folder), str(folder / "config.json"))
    source, stored = stored_tensors(folder)
    entries, copies = match_transformer(config, stored, source)
    params = {}
    for name, shape in param_shapes(config).items():
        if name not in entries:  # a bias that this model never learned
            params[name] = np.zeros(shape, dtype)
            continue
        param = as_float(map_tensor(entries[name]), dtype)
        params[name] = param.T.copy() if is_matrix(name) else param
    for name, entry in copies.items():
        _check_copy(name, read_tensor(entry), config, params, source)
    warn_of_broken(params, source)
    return config, params


def match_transformer(
    config: TransformerConfig, stored: Mapping[str, Entry], source: Path
) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """Find every parameter of `config` among the stored tensors; `source` names the file in errors.

    Returns:
        The parameters' entries, and those of tensors that can only repeat what is known: tables
        that are shared, and sinusoids.

    Raises ValueError, one sentence, for names that clash, tensors missing, misshapen, of a wrong
    dtype, or of layers beyond the configuration's. Warns of tensors that have no use.
    """
    found = _renamed(stored, source)
    wanted = param_shapes(config)
    for table in (config.target_table, config.source_table):
        # The shared table may be stored under a user's name only.
        for alias in TABLES:
            if table not in found and alias not in wanted and alias in found:
                found[table] = found.pop(alias)
    _check_complete(found, wanted, source)
    for name, shape in wanted.items():
        if name in found:
            check_entry(name, found[name], shape[::-1] if is_matrix(name) else shape, source)
    repeated = TABLES if config.learned_positions else (*TABLES, *SINES)
    copies = {name: found[name] for name in repeated if name in found and name not in wanted}
    _check_extras([n for n in found if n not in wanted and n not in copies], config, source)
    return {name: found[name] for name in wanted if name in found}, copies


def save_transformer(
    folder: str | os.PathLike[str],
    config: TransformerConfig,
    params: Mapping[str, np.ndarray],
    **options: Any,
) -> None:
    """Write config.json and model.safetensors as transformers reads them (bart and marian).

    Raises ValueError for parameters that do not fit the configuration, and what
    `npgpt.files.checkpoint.write_checkpoint` raises, which takes the `options`.
    """
    wanted = param_shapes(config)
    dtype = check_saved(params, wanted)
    tensors = {
        name if name in ("lm_head.weight", "final_logits_bias") else f"model.{name}": (
            param.T if is_matrix(name) else param
        )
        for name, param in params.items()
    }
    raw = {**config.to_dict(), "dtype": dtype}
    if beside := options.get("beside"):
        options["beside"] = _with_settings(raw, beside)
    write_checkpoint(folder, raw, tensors, **options)


def _with_settings(raw: dict[str, Any], beside: dict[str, bytes]) -> dict[str, bytes]:
    """The files beside, generation_config.json with the settings of config.json, as on loading."""
    said = parse_json(beside.get(GENERATION_CONFIG, b"{}"), GENERATION_CONFIG)
    changed = {key: raw[key] for key in GENERATION if said.get(key) not in (None, raw[key])}
    if not changed:
        return beside
    text = json.dumps(said | changed, indent=2) + "\n"
    return {**beside, GENERATION_CONFIG: text.encode()}


def _raw_config(folder: Path) -> dict[str, Any]:
    raw = read_raw_config(folder / "config.json")
    generation = folder / GENERATION_CONFIG
    if generation.is_file():
        said = read_raw_config(generation)
        raw |= {key: said[key] for key in GENERATION if said.get(key) is not None}
    return raw


def _renamed(stored: Mapping[str, Entry], source: Path) -> dict[str, Entry]:
    renamed: dict[str, Entry] = {}
    origins: dict[str, str] = {}
    for origin, entry in stored.items():
        unwrapped = ".".join(part for part in origin.split(".") if part not in WRAPPERS)
        name = re.sub(r"^(model\.)+", "", unwrapped)
        if name in renamed:
            raise ValueError(f"{source}: {origins[name]!r} and {origin!r} are both {name!r}.")
        renamed[name], origins[name] = entry, origin
    return renamed


def _check_complete(
    found: Mapping[str, Entry], wanted: Mapping[str, tuple[int, ...]], source: Path
) -> None:
    missing = [name for name in wanted if name not in found and name != "final_logits_bias"]
    if not missing:
        return
    hint = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    if missing[0] == "lm_head.weight":
        hint = ", but tie_word_embeddings is false; set it to true if the head is the table"
    shape = list(wanted[missing[0]])
    if is_matrix(missing[0]):
        shape.reverse()
    raise ValueError(f"{source}: lacks {missing[0]!r} of shape {shape}{hint}.")


def _check_extras(extra: list[str], config: TransformerConfig, source: Path) -> None:
    for name in extra:
        layer = re.match(r"(encoder|decoder)\.layers\.(\d+)\.", name)
        if layer and int(layer[2]) >= getattr(config, f"{layer[1]}_layers"):
            raise ValueError(
                f"{source}: has {name!r}, but {layer[1]}_layers is "
                f"{getattr(config, f'{layer[1]}_layers')} in config.json; "
                "set it to the number of layers."
            )
    if extra:
        warnings.warn(
            f"{source}: not part of this {config.model_type} and not used: {shortened(extra)}.",
            UserWarning,
            stacklevel=4,
        )


def _check_copy(
    name: str,
    copy: np.ndarray,
    config: TransformerConfig,
    params: Mapping[str, np.ndarray],
    source: Path,
) -> None:
    """A table that is there already must be stored with the same numbers."""
    if name in SINES:
        # Stored with the digits of float32 or float16, and never learned.
        exact = sinusoids_in_halves(np.arange(len(copy)), config.d_model)
        if copy.shape != exact.shape or np.abs(copy - exact).max() > 1e-3:
            raise ValueError(
                f"{source}: {name!r} holds other numbers than Marian's sinusoids, which this "
                "model computes."
            )
        return
    table = config.source_table if name.startswith("encoder") else config.target_table
    if not np.array_equal(as_float(copy, params[table].dtype), params[table], equal_nan=True):
        key = (
            "tie_word_embeddings"
            if name == "lm_head.weight"
            else "share_encoder_decoder_embeddings"
        )
        raise ValueError(
            f"{source}: {name!r} differs from {table!r}, but by config.json the two are one; "
            f"set {key} to false to keep both."
        )
