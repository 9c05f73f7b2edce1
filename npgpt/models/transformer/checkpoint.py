"""Loads and saves a checkpoint of `bart` or `marian`, or of the paper's model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npgpt.files.checkpoint import check_saved, write_checkpoint
from npgpt.files.safetensors_file import read_tensor
from npgpt.files.tensors import Copy, Layout, as_stored, find_tensors, load_params
from npgpt.models.settings import read_config
from npgpt.models.transformer.config import TransformerConfig, param_shapes
from npgpt.ops.sinusoids import sinusoids_in_halves

HEAD, LOGITS_BIAS = "lm_head.weight", "final_logits_bias"
TABLES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", HEAD)
SINES = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")
LAYOUT = Layout(
    model="this encoder-decoder",
    prefix="model.",
    bare=(HEAD, LOGITS_BIAS),
    matrices=r".*\.layers\..*(proj|fc1|fc2)\.weight",
    blocks={f"{side}.layers": f"{side}_layers" for side in ("encoder", "decoder")},
    unit="layers",
    optional=(LOGITS_BIAS,),  # most models never learned one
    hints={HEAD: ", but tie_word_embeddings is false; set it to true if the head is the table"},
)


def load_transformer(
    folder: str | os.PathLike[str], *, dtype: DTypeLike = np.float32
) -> tuple[TransformerConfig, dict[str, np.ndarray]]:
    """Read config.json and the weights.

    Returns the configuration, and the parameters under the names and shapes of `param_shapes`, in
    `dtype`. Raises and warns as `npgpt.models.gpt2.checkpoint.load_checkpoint` does.
    """
    folder = Path(folder)
    config = read_config(TransformerConfig, folder / "config.json")
    stored = find_tensors(folder, LAYOUT._replace(model=f"this {config.model_type}"))
    found, shapes, copies = stored.entries, param_shapes(config), _copies(config)
    for name, copy in copies.items():
        # The shared table may be stored under a user's name only.
        if copy.of not in found and name in found:
            found[copy.of] = found.pop(name)
    computed = {name: found.pop(name) for name in SINES if name in found and name not in shapes}
    params = load_params(stored, shapes, config, dtype, copies)
    for name, entry in computed.items():
        _check_sines(name, read_tensor(entry), config.d_model, stored.source)
    return config, params


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
    dtype = check_saved(params, param_shapes(config))
    raw = {**config.to_dict(), "dtype": dtype}
    write_checkpoint(folder, raw, as_stored(params, LAYOUT), **options)


def _copies(config: TransformerConfig) -> dict[str, Copy]:
    """The tables that are shared, by the other names under which a file may have them."""
    copies = {}
    for name in TABLES:
        table = config.source_table if name.startswith("encoder") else config.target_table
        tied = "tie_word_embeddings" if name == HEAD else "share_encoder_decoder_embeddings"
        if table != name and (name != HEAD or config.tie_word_embeddings):
            copies[name] = Copy(table, f"one; set {tied} to false to keep both")
    return copies


def _check_sines(name: str, stored: np.ndarray, d: int, source: Path) -> None:
    """They are stored with the digits of float32 or float16, and were never learned."""
    exact = sinusoids_in_halves(np.arange(len(stored)), d)
    if stored.shape != exact.shape or np.abs(stored - exact).max() > 1e-3:
        raise ValueError(
            f"{source}: {name!r} holds other numbers than Marian's sinusoids, which this model "
            "computes."
        )
