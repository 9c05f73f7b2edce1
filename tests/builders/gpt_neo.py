"""Tiny GPT-Neos: random ones, and one in a folder with a vocabulary of bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from npgpt.models.gpt2.config import init_params
from npgpt.models.gpt_neo.config import GPTNeoConfig
from npgpt.models.gpt_neo.model import GPTNeo
from tests.builders.gpt2 import BYTES, write_byte_vocabulary

# No two sizes agree, so that a swapped axis cannot go unnoticed; T may go beyond the window.
SIZES: dict[str, Any] = {
    "vocab_size": 19,
    "max_position_embeddings": 11,
    "hidden_size": 12,
    "num_layers": 2,
    "num_heads": 3,
    "attention_types": [[["global", "local"], 1]],
    "window_size": 4,
}


def random_gpt_neo(
    rng: np.random.Generator, dtype: type[np.floating] = np.float64, **options: Any
) -> GPTNeo:
    """A model whose biases and gains are not 0 and 1 either."""
    config = GPTNeoConfig.from_dict({**SIZES, **options})
    params = init_params(config, rng, np.float64)
    for param in params.values():
        param += 0.3 * rng.standard_normal(param.shape)
    return GPTNeo(config, {name: param.astype(dtype) for name, param in params.items()})


def write_tiny_gpt_neo(folder: Path, **options: Any) -> Path:
    """A checkpoint with vocabulary."""
    sizes = {"max_position_embeddings": BYTES["n_positions"], **BYTES}
    del sizes["n_positions"]
    model = random_gpt_neo(np.random.default_rng(0), np.float32, **{**sizes, **options})
    model.save_pretrained(folder)
    write_byte_vocabulary(folder)
    return folder
