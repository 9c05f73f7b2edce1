"""Loads and saves a BERT's checkpoint.

The next-sentence classifier and the heads of tasks are not used, but saved again as they were.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from npgpt.files.checkpoint import check_saved, write_checkpoint
from npgpt.files.safetensors_file import read_tensor
from npgpt.files.tensors import Copy, Layout, as_stored, find_tensors, load_params, unwrapped
from npgpt.models.bert.config import BERTConfig, param_shapes
from npgpt.models.bert.families import Family
from npgpt.models.settings import read_config

WORDS = "embeddings.word_embeddings.weight"
MATRICES = r"(.*\.)?(query|key|value|dense|[qkv]_lin|out_lin|lin[12]|vocab_transform)\.weight"


def layout_of(family: Family) -> Layout:
    """How the checkpoints of a family name and store the parameters."""
    hint = ", but tie_word_embeddings is false; set it to true if the head is the word table"
    return Layout(
        model="this BERT",
        prefix=family.prefix,
        bare=(family.head,),
        matrices=MATRICES,
        blocks={family.layers: "num_hidden_layers"},
        unit="layers",
        old_names={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
        buffers=("embeddings.position_ids", "embeddings.token_type_ids"),  # 0, 1, 2, … and zeros
        keeps_others=True,
        hints={f"{family.decoder}.weight": hint},
    )


def load_bert(
    folder: str | os.PathLike[str], *, dtype: DTypeLike = np.float32
) -> tuple[BERTConfig, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Read `config.json` and `model.safetensors` (or its shards) of a BERT.

    A checkpoint without a pooler or without an MLM head gives parameters without one; half of one
    is refused. Returns the configuration; the parameters under the names and shapes of
    `param_shapes`, in `dtype`; and all other tensors as they are stored. Raises and warns as
    `npgpt.models.gpt2.checkpoint.load_checkpoint` does.
    """
    folder = Path(folder)
    config = read_config(BERTConfig, folder / "config.json")
    family = config.family
    stored = find_tensors(folder, layout_of(family))
    found, tied = stored.entries, config.tie_word_embeddings
    bias, decoder_bias = family.bias, f"{family.decoder}.bias"
    # An untied head reads the decoder's own bias; the other one, where it is stored, has no effect.
    if decoder_bias in found and (bias not in found or not tied):
        found[bias] = found.pop(decoder_bias)
    copies = {f"{family.decoder}.weight": Copy(WORDS)} if tied else {}
    if tied and decoder_bias != bias:
        copies[decoder_bias] = Copy(bias)
    pooler, mlm_head = (
        any(name.startswith(head) for name in found.keys() - copies.keys())
        for head in ("pooler.", family.head)
    )
    shapes = param_shapes(config, pooler=pooler, mlm_head=mlm_head)
    params = load_params(stored, shapes, config, dtype, copies)
    others = {
        unwrapped(stored.origins[name]): read_tensor(entry)
        for name, entry in found.items()
        if name not in shapes and name not in copies
    }
    return config, params, others


def save_bert(
    folder: str | os.PathLike[str],
    config: BERTConfig,
    params: Mapping[str, np.ndarray],
    others: Mapping[str, np.ndarray] | None = None,
    **options: Any,
) -> None:
    """Write `config.json` and `model.safetensors` as transformers reads them.

    With an MLM head as BertForMaskedLM has it (RobertaForMaskedLM, and so on), else as BertModel; a
    pooler beside an MLM head is saved too, though that class has no use for it and says so.
    `others`, the tensors of a task that `load_bert` found, go beside them, for the architecture
    that the file named.

    Raises ValueError for parameters that do not fit the configuration, and what
    `npgpt.files.checkpoint.write_checkpoint` raises, which takes the `options`.
    """
    family, layout = config.family, layout_of(config.family)
    mlm_head, pooler = family.bias in params, "pooler.dense.weight" in params
    dtype = check_saved(params, param_shapes(config, pooler=pooler, mlm_head=mlm_head))
    has_prefix = mlm_head or others
    tensors = as_stored(params, layout if has_prefix else layout._replace(prefix=""))
    if f"{family.decoder}.weight" in params:  # an untied head has a bias of its own there
        tensors[f"{family.decoder}.bias"] = params[family.bias]
    raw = {**config.to_dict(), "dtype": dtype}
    if not others or "architectures" not in config.other:
        raw["architectures"] = [family.cls + ("ForMaskedLM" if mlm_head else "Model")]
    write_checkpoint(folder, raw, {**(others or {}), **tensors}, **options)
