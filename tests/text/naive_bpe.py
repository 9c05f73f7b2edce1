"""Byte-level BPE as one does it on paper, to compare with: trains, merges, writes files. Slow.

It joins pairs, as GPT-2 does; tiktoken joins bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import regex  # type: ignore[import-untyped]

from npgpt.text.byte_pairs import byte_alphabet

Merge = tuple[bytes, bytes]

WORDS = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
CORPUS = (
    "the cat sat on the mat, that the rat's hat sat on: aaa aaaa 1000 2000\n\n  Ondřej 地想地 😁"
)
END_OF_TEXT = "<|endoftext|>"
CHARACTER = {byte: char for char, byte in byte_alphabet().items()}


def apply(merge: Merge, tokens: Sequence[bytes]) -> list[bytes]:
    """Join a pair wherever it stands, from left to right."""
    joined: list[bytes] = []
    for token in tokens:
        if joined and (joined[-1], token) == merge:
            joined[-1] += token
        else:
            joined.append(token)
    return joined


def merge_all(piece: bytes, merges: Sequence[Merge]) -> list[bytes]:
    """The tokens of one word: each merge in the order it was learned."""
    tokens = [bytes([byte]) for byte in piece]
    for merge in merges:
        tokens = apply(merge, tokens)
    return tokens


def encode(text: str, merges: Sequence[Merge], vocab: Mapping[str, int]) -> list[int]:
    words = WORDS.findall(text)
    tokens = (token for word in words for token in merge_all(word.encode("utf-8"), merges))
    return [vocab[written(token)] for token in tokens]


def train(corpus: str, count: int) -> list[Merge]:
    """The `count` most frequent pairs, one after the other."""
    words = [merge_all(word.encode("utf-8"), []) for word in WORDS.findall(corpus)]
    merges: list[Merge] = []
    for _ in range(count):
        pairs = Counter(pair for word in words for pair in pairwise(word))
        merges.append(max(pairs, key=lambda pair: (pairs[pair], pair)))
        words = [apply(merges[-1], word) for word in words]
    return merges


def written(token: bytes) -> str:
    """A token as the files write it."""
    return "".join(CHARACTER[bytes([byte])] for byte in token)


def number(merges: Sequence[Merge], first_bytes: Sequence[bytes] = ()) -> dict[str, int]:
    """Token -> id: `first_bytes`, the products of merges, all other bytes, end-of-text."""
    others = [bytes([b]) for b in range(256) if bytes([b]) not in first_bytes]
    tokens = [*first_bytes, *(left + right for left, right in merges), *others]
    return {**{written(token): i for i, token in enumerate(tokens)}, END_OF_TEXT: len(tokens)}


def in_writing(merges: Sequence[Merge]) -> list[tuple[str, str]]:
    return [(written(left), written(right)) for left, right in merges]


def write_folder(folder: Path, vocab: Mapping[str, int], merges: Sequence[Merge]) -> Path:
    """`vocab.json` and `merges.txt` as GPT-2 has them."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "vocab.json", vocab)
    text = "\n".join(["#version: 0.2", *map(" ".join, in_writing(merges)), ""])
    (folder / "merges.txt").write_text(text, encoding="utf-8")
    return folder


def added(content: str, token_id: int, *, special: bool) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": content, **flags, "special": special}


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def write_whole(
    folder: Path, vocab: Mapping[str, int], merges: Sequence[Merge], **changes: Any
) -> Path:
    """`tokenizer.json` of the same vocabulary, changed at keys such as `model__dropout`."""
    content = whole_file(vocab, merges)
    for key, value in changes.items():
        *parents, last = key.split("__")
        place = content
        for parent in parents:
            place = place[parent]
        place[last] = value
    write_json(folder / "tokenizer.json", content)
    return folder


def whole_file(vocab: Mapping[str, int], merges: Sequence[Merge]) -> dict[str, Any]:
    """What `tokenizer.json` says of the same vocabulary, as Hugging Face writes it today."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added(END_OF_TEXT, vocab[END_OF_TEXT], special=True)],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": dict(vocab),
            "merges": in_writing(merges),
        },
    }
