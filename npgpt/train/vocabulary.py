"""The vocabulary of a training run: that of another model's folder, or one id per byte.

Leaves out learning byte pairs from a text.
"""

from __future__ import annotations

import json
from pathlib import Path

from npgpt.decoding.causal import end_of_text_ids
from npgpt.files.checkpoint import GENERATION_CONFIG
from npgpt.files.hub import companions, find_model
from npgpt.files.io import replacing
from npgpt.models.gpt2.model import GPT2
from npgpt.models.llama.model import Llama
from npgpt.text.byte_pairs import byte_alphabet
from npgpt.text.tokenizer import Tokenizer

END_OF_TEXT = "<|endoftext|>"


def byte_tokenizer() -> Tokenizer:
    """One id per byte, and end-of-text."""
    return Tokenizer(
        "bytes",
        mergeable_ranks={bytes([b]): b for b in range(256)},
        special_tokens={END_OF_TEXT: 256},
    )


def write_vocabulary(folder: Path, source: str | None, *, generation_config: bool = False) -> None:
    """Copy the vocabulary files of the model `source`, or write those of `byte_tokenizer`.

    `generation_config`: copy that file too, whose ids are those of the vocabulary.
    """
    if source is None:
        vocab = {char: byte[0] for char, byte in byte_alphabet().items()} | {END_OF_TEXT: 256}
        with replacing(folder / "vocab.json", folder / "merges.txt") as (vocab_path, merges_path):
            vocab_path.write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
            merges_path.write_text("#version: 0.2\n", encoding="utf-8")
        return
    found = companions(find_model(source, files=("tokenizer",))) or {}
    for name, data in found.items():
        if name != GENERATION_CONFIG or generation_config:
            with replacing(folder / name) as (temporary,):
                temporary.write_bytes(data)


def end_of_text_id(tokenizer: Tokenizer, model: GPT2 | Llama | None) -> int | None:
    """The id between texts: the model's end-of-text, if the vocabulary has it."""
    if model is not None:
        found = [token for token in end_of_text_ids(model) if token in tokenizer.bytes_of]
        return found[0] if found else None
    return tokenizer.eot_token if END_OF_TEXT in tokenizer.special_tokens_set else None
