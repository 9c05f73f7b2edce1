"""A tiny random GPT-2 in a folder, with a vocabulary of single bytes and end-of-text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from npgpt.models.gpt2.checkpoint import save_checkpoint
from npgpt.models.gpt2.config import GPT2Config, init_params
from npgpt.text.byte_pairs import byte_alphabet

END_OF_TEXT = 256


def tiny_config(**options: Any) -> GPT2Config:
    """V 257, context 32, d 12, L 2, H 3."""
    sizes: dict[str, Any] = {
        "vocab_size": 257,
        "n_positions": 32,
        "n_embd": 12,
        "n_layer": 2,
        "n_head": 3,
        "bos_token_id": END_OF_TEXT,
        "eos_token_id": END_OF_TEXT,
    }
    return GPT2Config(**{**sizes, **options})


def write_vocabulary(folder: Path) -> None:
    """`vocab.json` with the 256 bytes in order and `<|endoftext|>` behind them; no merges."""
    vocab = {char: byte[0] for char, byte in byte_alphabet().items()}
    vocab["<|endoftext|>"] = END_OF_TEXT
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")


def write_tiny_model(folder: Path, *, scale: float = 20.0, seed: int = 0, **options: Any) -> Path:
    """A checkpoint with vocabulary; `scale` spreads the logits so that no two are nearly equal."""
    config = tiny_config(**options)
    params = init_params(config, np.random.default_rng(seed))
    for name in params:
        if name.endswith("weight") and "ln_" not in name:
            params[name] *= scale
    save_checkpoint(folder, config, params)
    write_vocabulary(folder)
    return folder
