"""The vocabulary in a GGUF file: the settings `tokenizer.ggml.*`.

Takes byte-level BPE, which llama.cpp calls "gpt2". Leaves out SentencePiece ("llama") and others.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from npgpt.files.gguf_reader import read_gguf_header
from npgpt.text.split_patterns import LLAMA3_SPLIT, named_pattern
from npgpt.text.vocabulary import Vocabulary, assemble
from npgpt.text.vocabulary_files import MarkedToken, expect, merges_by_index

UNKNOWN, CONTROL, ADDED = 2, 3, 4  # tokenizer.ggml.token_type; 1 is a usual token


def read_gguf_vocabulary(path: Path) -> Vocabulary:
    """Tokens, merges and special tokens of a `.gguf` file.

    Raises what `read_gguf_header` raises, and ValueError for a tokenizer that is not byte-level BPE
    or cuts texts in a way npgpt does not know, and as `npgpt.text.vocabulary.read_vocabulary` does.
    Warns where llama.cpp would put special tokens around every text.
    """
    settings = read_gguf_header(path).settings

    def said(name: str) -> Any:
        return settings.get(f"tokenizer.ggml.{name}")

    if said("model") != "gpt2":
        raise ValueError(
            f"{path}: tokenizer.ggml.model is {said('model')!r}, but npgpt reads byte-level BPE, "
            "which is 'gpt2'; give token ids instead of text (--ids)."
        )
    pattern = named_pattern(said("pre") or "gpt-2", path)
    tokens = expect(list, said("tokens"), f"{path}: tokenizer.ggml.tokens")
    where = f"{path}: tokenizer.ggml.merges"
    merges = merges_by_index(expect(list, said("merges"), where), where)
    if said("add_bos_token") or said("add_eos_token"):
        warnings.warn(
            f"{path}: llama.cpp puts special tokens around every text for this model, npgpt does "
            "not: write them into the text and pass allowed_special='all', or add their ids.",
            UserWarning,
            stacklevel=3,
        )
    marked = {
        text: MarkedToken(n, kind != ADDED)
        for n, (text, kind) in enumerate(zip(tokens, said("token_type") or [], strict=False))
        if kind in (UNKNOWN, CONTROL, ADDED)
    }
    vocab = {text: n for n, text in enumerate(tokens)}
    if len(vocab) < len(tokens):
        raise ValueError(f"{path}: tokenizer.ggml.tokens has the same token twice.")
    ranked = pattern == LLAMA3_SPLIT
    return assemble(vocab, merges, marked, pattern, path, where, ranked=ranked)
