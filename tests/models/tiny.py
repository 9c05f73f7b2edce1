"""Small GPT-2s for the tests: random ones with the scales of trained ones, and one that counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from npgpt.models.gpt2.config import GPT2Config, init_params
from npgpt.models.gpt2.model import GPT2

# No two sizes agree, so that a swapped axis cannot go unnoticed.
SIZES = {"vocab_size": 19, "n_positions": 11, "n_embd": 12, "n_layer": 2, "n_head": 3}


def tiny_config(**options: Any) -> GPT2Config:
    """A configuration that computes in a millisecond."""
    return GPT2Config.from_dict({**SIZES, **options})


def random_gpt2(
    rng: np.random.Generator,
    dtype: type[np.floating] = np.float64,
    *,
    extreme: bool = False,
    **options: Any,
) -> GPT2:
    """A model whose biases and gains are not 0 and 1 either.

    extreme: as in trained checkpoints, some LayerNorm gains are 10 and some rows 50 times larger.
    """
    config = tiny_config(**options)
    params = init_params(config, rng, np.float64)
    for name, param in params.items():
        if extreme and param.ndim == 2:
            param[1::6] *= 50
        else:
            param += 0.2 * rng.standard_normal(param.shape)
        if extreme and "ln_" in name and name.endswith("weight"):
            param[::5] = 10
    return GPT2(config, {name: param.astype(dtype) for name, param in params.items()})


def counting_gpt2(vocab_size: int = 9, rows: int | None = None, **options: Any) -> GPT2:
    """A model that follows each id by the next one; `rows` ids in all, if more than vocab_size."""
    rows = rows or vocab_size
    config = tiny_config(
        vocab_size=vocab_size,
        n_embd=rows,
        n_head=1,
        n_layer=1,
        tie_word_embeddings=False,
        **{"eos_token_id": None, **options},
    )
    params = init_params(config, np.random.default_rng(0))
    for name, param in params.items():
        if not name.startswith("ln_f"):
            param[...] = 0  # the block adds nothing to the residual stream
    params["wte.weight"] = np.eye(rows, dtype=np.float32)
    params["lm_head.weight"] = np.roll(params["wte.weight"], 1, axis=0)  # row v + 1 answers to v
    return GPT2(config, params)
