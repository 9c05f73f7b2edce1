"""A tiny random BERT in a folder, with a vocabulary of a few word pieces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.models.tiny_bert import random_bert

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


def write_tiny_bert(folder: Path, pieces: Sequence[str] = PIECES, **options: Any) -> Path:
    """A checkpoint with vocab.txt; options: see `random_bert`."""
    options = {"vocab_size": len(pieces), "pooler": False, **options}
    random_bert(np.random.default_rng(0), np.float32, **options).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return folder
