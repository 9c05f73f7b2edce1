"""Vocabularies: a GPT-2's in both its forms, those of the package tokenizers, a BERT's.

Right is: a GPT-2's ids spell the text again, whatever was changed. What the package tokenizers
reads has no second judge: its ids are those of the sound file where the change means nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import npgpt
from npgpt.text.byte_pairs import byte_alphabet
from npgpt.text.word_pieces import load_word_pieces
from tests.builders.bert import PIECES
from tests.builders.vocabularies import KINDS as FOREIGN
from tests.builders.vocabularies import QWEN2_CONFIG, qwen2, tekken, write_foreign, write_parts
from tests.fuzz.changes import change_folder
from tests.fuzz.harness import Change, Found, Kind

TEXT = "the cats sat on the mat.\n  Ünï 猫 <|endoftext|> 42"
MERGES = ["t h", "th e", "Ġ the", "a t", "Ġ c", "Ġc at"]
END = "<|endoftext|>"
PARTS = {
    "tokenizer_config.json": {
        "tokenizer_class": "GPT2Tokenizer",
        "bos_token": END,
        "eos_token": {"content": END, "lstrip": False, "special": True},
        "unk_token": END,
        "add_prefix_space": False,
        "add_bos_token": False,
        "model_max_length": 1000000000000000019884624838656,
        "added_tokens_decoder": {"262": {"content": END, "special": True, "lstrip": False}},
    },
    "special_tokens_map.json": {"eos_token": END, "unk_token": {"content": END}},
    "added_tokens.json": {"<|user|>": 263},
}
BERT_PARTS = {
    "do_lower_case": True,
    "strip_accents": None,
    "tokenize_chinese_chars": True,
    "mask_token": "[MASK]",
    "cls_token": {"content": "[CLS]"},
    "unk_token": "[UNK]",
    "model_max_length": 512,
    "added_tokens_decoder": {"4": {"content": "[MASK]", "special": True}},
}


def vocab() -> dict[str, int]:
    made = [merge.replace(" ", "") for merge in MERGES]
    return {token: n for n, token in enumerate([*byte_alphabet(), *made, END])}


def write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def make_parts(folder: Path) -> None:
    write(folder / "vocab.json", vocab())
    text = "\n".join(["#version: 0.2", *MERGES, ""])
    (folder / "merges.txt").write_text(text, encoding="utf-8")
    for name, value in PARTS.items():
        write(folder / name, value)


def make_whole(folder: Path) -> None:
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": 262, "content": END, "special": True, "lstrip": False}],
        "normalizer": None,
        "pre_tokenizer": {**level, "use_regex": True},
        "post_processor": level,
        "decoder": level,
        "model": {"type": "BPE", "dropout": None, "vocab": vocab(), "merges": MERGES},
    }
    write(folder / "tokenizer.json", whole)
    write(folder / "tokenizer_config.json", PARTS["tokenizer_config.json"])


def run(tokenizer: Any) -> Found:
    ids = tokenizer.encode(TEXT)
    special = tokenizer.encode(TEXT, allowed_special="all")
    texts = [tokenizer.decode(ids), tokenizer.decode(special)]
    return {"ids": ids, "text": texts, "by": type(tokenizer).__name__}


def check(found: Found, sound: Found, change: Change, folder: Path) -> None:
    assert found["text"] == [TEXT, TEXT]


def check_own(found: Found, sound: Found, change: Change, folder: Path) -> None:
    """Where a change makes it another kind, the file may ask for texts that do not come back."""
    if found["by"] == sound["by"]:
        check(found, sound, change, folder)


def make_pieces(folder: Path) -> None:
    write(folder / "config.json", {"model_type": "bert"})
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    write(folder / "tokenizer_config.json", BERT_PARTS)


def make_whole_pieces(folder: Path) -> None:
    make_pieces(folder)
    whole = load_word_pieces(folder).tokenizer.to_str()
    (folder / "tokenizer.json").write_text(whole, encoding="utf-8")
    (folder / "vocab.txt").unlink()


def run_pieces(pieces: Any) -> Found:
    return {"ids": pieces.encode(TEXT), "mask": pieces.mask_id}


def run_foreign(tokenizer: Any) -> Found:
    ids = tokenizer.encode(TEXT)
    return {"ids": ids, "text": tokenizer.decode(ids)}


def make_qwen2(folder: Path) -> None:
    write(folder / "tokenizer.json", qwen2())
    write(folder / "tokenizer_config.json", QWEN2_CONFIG)


KINDS = [
    Kind(
        "vocab.json",
        make_parts,
        change_folder("vocab.json", "merges.txt", *PARTS),
        npgpt.load_tokenizer,
        run,
        check,
    ),
    Kind(
        "tokenizer.json",
        make_whole,
        change_folder("tokenizer.json", "tokenizer_config.json"),
        npgpt.load_tokenizer,
        run,
        check,
    ),
    Kind(
        "qwen2-tokenizer.json",
        make_qwen2,
        change_folder("tokenizer.json", "tokenizer_config.json"),
        npgpt.load_tokenizer,
        run,
        check,
    ),
    Kind(
        "qwen2-vocab.json",
        lambda folder: write_parts(folder, qwen2(), **QWEN2_CONFIG),
        change_folder("vocab.json", "merges.txt", "tokenizer_config.json"),
        npgpt.load_tokenizer,
        run,
        check,
    ),
    Kind(
        "tekken-tokenizer.json",
        lambda folder: write(folder / "tokenizer.json", {**tekken(), "post_processor": None}),
        change_folder("tokenizer.json"),
        npgpt.load_tokenizer,
        run,
        check_own,
    ),
    Kind(
        "vocab.txt",
        make_pieces,
        change_folder("vocab.txt", "tokenizer_config.json"),
        load_word_pieces,
        run_pieces,
    ),
    Kind(
        "bert-tokenizer.json",
        make_whole_pieces,
        change_folder("tokenizer.json", "tokenizer_config.json"),
        load_word_pieces,
        run_pieces,
    ),
    *(
        Kind(
            f"{name}-tokenizer.json",
            lambda folder, make=make: write_foreign(folder, make()),  # type: ignore[misc]
            change_folder("tokenizer.json", "tokenizer_config.json"),
            npgpt.load_tokenizer,
            run_foreign,
        )
        for name, make in FOREIGN.items()
    ),
]
