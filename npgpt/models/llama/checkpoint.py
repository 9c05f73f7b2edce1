"""Loads and saves the checkpoint of a Llama or a relative."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npgpt.files.checkpoint import check_names, check_saved, write_checkpoint
from npgpt.files.tensors import Copy, Layout, as_stored, find_tensors, load_params, stored_rows
from npgpt.models.llama.config import LlamaConfig, param_shapes
from npgpt.models.settings import read_config

HEAD, TABLE = "lm_head.weight", "embed_tokens.weight"
LAYOUT = Layout(
    model="Llama",
    prefix="model.",
    bare=(HEAD,),
    matrices=r"layers\..*proj\.weight",
    blocks={"layers": "num_hidden_layers"},
    buffers=("rotary_emb.inv_freq",),  # angles, which follow from the configuration
    refused={
        ".bias": "config.json asks for no such bias (attention_bias, mlp_bias, model_type)",
        "_norm.weight": "config.json asks for no such norm, which a qwen3 has (model_type)",
    },
    hints={HEAD: f", but tie_word_embeddings is not set; set it to true if the head is {TABLE}"},
)


def load_llama(
    folder: str | os.PathLike[str], *, dtype: DTypeLike = np.float32
) -> tuple[LlamaConfig, dict[str, np.ndarray]]:
    """Read `config.json` and `model.safetensors` (or its shards) of a Llama or a relative.

    Returns the configuration, and the parameters under the names and shapes of `param_shapes`, in
    `dtype`; the token table may have more rows than `vocab_size`: padding. Raises and warns as
    `npgpt.models.gpt2.checkpoint.load_checkpoint` does.
    """
    folder = Path(folder)
    config = read_config(LlamaConfig, folder / "config.json")
    stored = find_tensors(folder, LAYOUT)
    rows = stored_rows(stored, TABLE, config, "vocab_size", padded=True)
    shapes = param_shapes(replace(config, vocab_size=rows))
    copies = {HEAD: Copy(TABLE)} if config.tie_word_embeddings else {}
    params = load_params(stored, shapes, config, dtype, copies)
    return replace(config, vocab_size=min(rows, config.vocab_size)), params


def save_llama(
    folder: str | os.PathLike[str],
    config: LlamaConfig,
    params: Mapping[str, np.ndarray],
    **options: Any,
) -> None:
    """Write `config.json` and `model.safetensors` as transformers' class reads them.

    Raises ValueError for parameters that do not fit the configuration, and what
    `npgpt.files.checkpoint.write_checkpoint` raises, which takes the `options`.
    """
    check_names(params, param_shapes(config))
    config = replace(config, vocab_size=len(params[TABLE]))
    dtype = check_saved(params, param_shapes(config))
    raw = {**config.to_dict(), "dtype": dtype}
    write_checkpoint(folder, raw, as_stored(params, LAYOUT), **options)
