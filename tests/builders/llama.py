"""Tiny random Llamas, and one in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from npgpt.models.llama.config import LlamaConfig, init_params
from npgpt.models.llama.model import Llama
from tests.builders.gpt2 import write_byte_vocabulary

# No two sizes agree, so that a swapped axis cannot go unnoticed.
SIZES = {
    "vocab_size": 19,
    "hidden_size": 18,
    "intermediate_size": 10,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 4,
    "max_position_embeddings": 11,
    "bos_token_id": None,
    "eos_token_id": None,
}


def tiny_llama_config(**options: Any) -> LlamaConfig:
    """A configuration that computes in a millisecond."""
    return LlamaConfig.from_dict({**SIZES, **options})


def random_llama(
    rng: np.random.Generator, dtype: type[np.floating] = np.float64, **options: Any
) -> Llama:
    """A model whose gains are not 1 either, and whose attention is not nearly uniform."""
    config = tiny_llama_config(**options)
    params = init_params(config, rng, np.float64)
    for param in params.values():
        param += 0.25 * rng.standard_normal(param.shape)
    return Llama(config, {name: param.astype(dtype) for name, param in params.items()})


def write_tiny_llama(folder: Path, **options: Any) -> Path:
    """A checkpoint with a vocabulary of single bytes: V 257, context 32."""
    options = {"vocab_size": 257, "max_position_embeddings": 32, **options}
    random_llama(np.random.default_rng(3), np.float32, **options).save_pretrained(folder)
    write_byte_vocabulary(folder)
    return folder
