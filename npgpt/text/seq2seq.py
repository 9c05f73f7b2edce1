"""The vocabulary of an encoder-decoder: characters of config.json, or Marian's word pieces.

Leaves out BART's byte pairs with their marks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Protocol

from npgpt.files.hub import find_model
from npgpt.models.transformer.config import TransformerConfig
from npgpt.text.character_tables import CharacterTables
from npgpt.text.marian_tokenizer import load_marian_tokenizer


class Seq2SeqTokenizer(Protocol):
    """Source text -> ids, target text <-> ids; both end with the end of the text."""

    def encode(self, text: str) -> list[int]: ...

    def encode_target(self, text: str) -> list[int]: ...

    def decode(self, ids: Iterable[int]) -> str: ...


def load_seq2seq_tokenizer(
    name: str | os.PathLike[str], config: TransformerConfig, *, revision: str | None = None
) -> Seq2SeqTokenizer:
    """The tokenizer of the model `name`, whose configuration this is.

    Raises ValueError for a model whose vocabulary is not read here, else as
    `load_marian_tokenizer`.
    """
    if "grapheme_chars" in config.other:
        return CharacterTables(config)
    if config.model_type == "marian":
        return load_marian_tokenizer(name, revision=revision)
    folder = find_model(name, revision, files=("config",))
    raise ValueError(
        f"{folder} is a {config.model_type}, whose vocabulary is not read here; give --ids."
    )
