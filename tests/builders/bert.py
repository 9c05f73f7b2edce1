"""Tiny random BERTs, and one in a folder with a vocabulary of a few word pieces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npgpt.models.bert.config import BERTConfig, init_params
from npgpt.models.bert.families import family_of
from npgpt.models.bert.model import BERT

# No two sizes agree, so that a swapped axis cannot go unnoticed.
SIZES = {
    "vocab_size": 19,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 14,
    "max_position_embeddings": 11,
    "type_vocab_size": 2,
}
PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "cat",
    "##s",
    "sat",
    "on",
    "mat",
    "cafe",
    "猫",
    ".",
]


def tiny_bert_config(**options: Any) -> BERTConfig:
    """A configuration that computes in a millisecond; of BERT's relatives, too (`model_type`)."""
    renamed = family_of(options.get("model_type", "bert")).renamed
    return BERTConfig.from_dict({renamed.get(n, n): v for n, v in {**SIZES, **options}.items()})


def random_bert(
    rng: np.random.Generator,
    dtype: type[np.floating] = np.float64,
    *,
    pooler: bool = True,
    mlm_head: bool = True,
    **options: Any,
) -> BERT:
    """A model whose biases and gains are not 0 and 1 either, and whose attention is not flat."""
    config = tiny_bert_config(**options)
    params = init_params(config, rng, np.float64, pooler=pooler, mlm_head=mlm_head)
    for param in params.values():
        param += 0.3 * rng.standard_normal(param.shape)
    return BERT(config, {name: param.astype(dtype) for name, param in params.items()})


def write_tiny_bert(folder: Path, pieces: Sequence[str] = PIECES, **options: Any) -> Path:
    """A checkpoint with vocab.txt; options: see `random_bert`."""
    options = {"vocab_size": len(pieces), "pooler": False, **options}
    random_bert(np.random.default_rng(0), np.float32, **options).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return folder
