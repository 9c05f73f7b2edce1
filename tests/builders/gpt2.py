"""Tiny GPT-2s: random ones with the scales of trained ones, one that counts, one in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from npgpt.models.gpt2.checkpoint import save_checkpoint
from npgpt.models.gpt2.config import GPT2Config, init_params
from npgpt.models.gpt2.model import GPT2
from npgpt.text.byte_pairs import byte_alphabet

# No two sizes agree, so that a swapped axis cannot go unnoticed.
SIZES = {"vocab_size": 19, "n_positions": 11, "n_embd": 12, "n_layer": 2, "n_head": 3}
END_OF_TEXT = 256
BYTES = {
    "vocab_size": 257,
    "n_positions": 32,
    "bos_token_id": END_OF_TEXT,
    "eos_token_id": END_OF_TEXT,
}


def tiny_gpt2_config(**options: Any) -> GPT2Config:
    """A configuration that computes in a millisecond."""
    return GPT2Config.from_dict({**SIZES, **options})


def byte_gpt2_config(**options: Any) -> GPT2Config:
    """The same with a vocabulary of single bytes and end-of-text: V 257, context 32."""
    return tiny_gpt2_config(**{**BYTES, **options})


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
    config = tiny_gpt2_config(**options)
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
    config = tiny_gpt2_config(
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


def write_byte_vocabulary(folder: Path) -> None:
    """`vocab.json` with the 256 bytes in order and `<|endoftext|>` behind them; no merges."""
    vocab = {char: byte[0] for char, byte in byte_alphabet().items()}
    vocab["<|endoftext|>"] = END_OF_TEXT
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")


def write_tiny_gpt2(folder: Path, *, scale: float = 20.0, seed: int = 0, **options: Any) -> Path:
    """A checkpoint with vocabulary; `scale` spreads the logits so that no two are nearly equal."""
    config = byte_gpt2_config(**options)
    params = init_params(config, np.random.default_rng(seed))
    for name in params:
        if name.endswith("weight") and "ln_" not in name:
            params[name] *= scale
    save_checkpoint(folder, config, params)
    write_byte_vocabulary(folder)
    return folder
