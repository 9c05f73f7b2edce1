"""Vocabularies made as Qwen's, Mistral's and RoBERTa's are: the ids of tokenizers, texts back."""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import npgpt
from npgpt.text.tokenizer import Tokenizer, stream_text
from tests.builders.gguf import write_gguf
from tests.builders.vocabularies import (
    QWEN2_CONFIG,
    QWEN2_REGEX,
    byte_level,
    gguf_vocabulary,
    odd_texts,
    qwen2,
    split_then_bytes,
    tekken,
    write_parts,
)
from tests.text.naive_bpe import write_json

pytestmark = pytest.mark.usefixtures("tokenizers")
MADE: dict[str, Callable[[], dict[str, Any]]] = {"qwen2": qwen2, "tekken": tekken}


def load(folder: Path) -> Tokenizer:
    with warnings.catch_warnings():  # of <s>, which Hugging Face puts before a text
        warnings.filterwarnings("ignore", message=".* puts special tokens around every text")
        loaded = npgpt.load_tokenizer(folder)
    assert isinstance(loaded, Tokenizer)  # not left to the package
    return loaded


@pytest.mark.parametrize("kind", MADE)
def test_ids_are_those_of_the_package(tmp_path, rng, kind) -> None:
    from tokenizers import Tokenizer as Reference

    content = MADE[kind]()
    write_json(tmp_path / "tokenizer.json", content)
    ours, theirs = load(tmp_path), Reference.from_str(json.dumps(content))
    for text in odd_texts(rng, 3000):
        theirs.encode_special_tokens = False
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, allowed_special="all") == ids, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False), text
        assert "".join(stream_text(ours, ids)) == ours.decode(ids)
        theirs.encode_special_tokens = True
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids, text


def test_qwens_parts_give_the_ids_of_its_tokenizer_json(tmp_path, rng) -> None:
    """vocab.json and merges.txt alone: the class in tokenizer_config.json says how to cut."""
    (tmp_path / "whole").mkdir()
    write_json(tmp_path / "whole" / "tokenizer.json", qwen2())
    whole = load(tmp_path / "whole")
    parts = load(write_parts(tmp_path, qwen2(), **QWEN2_CONFIG))
    assert (
        parts.special_tokens_set
        == {"<|endoftext|>", "<|im_start|>", "<|im_end|>"} | parts.added_words
    )
    assert parts.added_words == {"<tool_call>", "</tool_call>", "<think>", "</think>"}
    assert parts.rules == whole.rules
    (tmp_path / "tokenizer_config.json").unlink()
    assert load(tmp_path).rules != whole.rules  # as GPT-2 cuts
    write_json(tmp_path / "config.json", {"model_type": "qwen3"})
    assert load(tmp_path).rules == whole.rules
    for text in odd_texts(rng, 200):
        ids = whole.encode(text, allowed_special="all")
        assert parts.encode(text, allowed_special="all") == ids, text
        assert parts.encode(text) == whole.encode(text), text


@pytest.mark.hf
def test_qwens_ids_are_those_of_transformers(tmp_path, hf, rng) -> None:
    from transformers import AutoTokenizer

    ours = load(write_parts(tmp_path, qwen2(), **QWEN2_CONFIG))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in odd_texts(rng, 1000):
        ids = theirs(text).input_ids
        assert ours.encode(text, allowed_special="all") == ids, text
        assert ours.encode(text) == theirs(text, split_special_tokens=True).input_ids, text
        assert ours.decode(ids) == theirs.decode(ids), text


def test_a_class_that_is_not_known(tmp_path) -> None:
    write_parts(tmp_path, qwen2(), **{**QWEN2_CONFIG, "tokenizer_class": "CLIPTokenizer"})
    sentence = (
        r"tokenizer_class is 'CLIPTokenizer', but without a tokenizer\.json npgpt reads GPT2Tok"
    )
    with pytest.raises(ValueError, match=sentence):
        npgpt.load_tokenizer(tmp_path)
    write_parts(tmp_path, qwen2(), **{**QWEN2_CONFIG, "tokenizer_class": "Qwen2TokenizerFast"})
    assert load(tmp_path).composed


def test_a_token_is_cut_out_before_characters_are_composed(tmp_path) -> None:
    """An end of turn and a stroke would be one character ≯ in NFC; the token comes first."""
    write_json(tmp_path / "tokenizer.json", qwen2())
    ours = load(tmp_path)
    end = ours.encode("<|im_end|>", allowed_special="all")
    assert len(end) == 1
    assert ours.encode("<|im_end|>\u0338", allowed_special="all")[:1] == end
    assert ours.encode("<|im_end|>\u0338") == ours.encode("<|im_end|\u226f")
    assert ours.encode("e\u0301") == ours.encode("é")
    assert ours.decode(ours.encode("cafe\u0301 \u212b")) == "café Å"
    found = [ours.encode_with_unstable(text) for text in ("e\u0301", "é")]
    assert found[0][0] == found[1][0]
    assert sorted(found[0][1]) == sorted(found[1][1])


def test_a_word_that_is_looked_for_after_composing_is_left_to_the_package(tmp_path) -> None:
    content = qwen2()
    content["added_tokens"][-1]["normalized"] = True
    write_json(tmp_path / "tokenizer.json", content)
    assert not isinstance(npgpt.load_tokenizer(tmp_path), Tokenizer)
    write_parts(tmp_path, content, **QWEN2_CONFIG)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="'</think>' is looked for after NFC"):
        npgpt.load_tokenizer(tmp_path)


def test_a_copy_of_a_tokenizer_composes_too(tmp_path) -> None:
    write_json(tmp_path / "tokenizer.json", qwen2())
    ours = load(tmp_path)
    assert pickle.loads(pickle.dumps(ours)).encode("e\u0301") == ours.encode("é")
    assert ours.rules.startswith("NFC ")


@pytest.mark.parametrize(("behavior", "is_ours"), [("Removed", True), ("MergedWithNext", False)])
def test_splits_that_keep_all_of_a_text(tmp_path, rng, behavior, is_ours) -> None:
    from tokenizers import Tokenizer as Reference

    content = {**qwen2(), "pre_tokenizer": split_then_bytes(QWEN2_REGEX, behavior)}
    write_json(tmp_path / "tokenizer.json", content)
    ours, theirs = npgpt.load_tokenizer(tmp_path), Reference.from_str(json.dumps(content))
    assert isinstance(ours, Tokenizer) == is_ours
    theirs.encode_special_tokens = True
    for text in odd_texts(rng, 100):
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids, text


def test_other_patterns_are_left_to_the_package(tmp_path) -> None:
    content = {**qwen2(), "pre_tokenizer": split_then_bytes(QWEN2_REGEX + r"|\d")}
    write_json(tmp_path / "tokenizer.json", content)
    assert not isinstance(npgpt.load_tokenizer(tmp_path), Tokenizer)
    del content["pre_tokenizer"]["pretokenizers"][0]["pattern"]
    write_json(tmp_path / "tokenizer.json", content)
    with pytest.raises(ValueError, match="is not a tokenizer that can be read"):
        npgpt.load_tokenizer(tmp_path)


@pytest.mark.hf
def test_a_space_in_front_where_the_settings_ask_for_it(tmp_path, hf, rng) -> None:
    """As RoBERTa's settings may; tiktoken knows no such space, so that the package reads it."""
    from transformers import AutoTokenizer

    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    write_json(tmp_path / "tokenizer.json", byte_level(level, ["<|endoftext|>"]))
    settings = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True, "trim_offsets": True}
    write_json(tmp_path / "tokenizer_config.json", settings)
    ours, theirs = npgpt.load_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    for text in odd_texts(rng, 200):
        assert ours.encode(text, allowed_special="all") == theirs(text).input_ids, text
    assert ours.encode("cat") == ours.encode(" cat")


@pytest.mark.parametrize("kind", MADE)
def test_a_gguf_file_gives_the_ids_of_a_folder(tmp_path, rng, kind) -> None:
    """Names for rows of the table without a token are no tokens, not even on request."""
    content = MADE[kind]()
    write_json(tmp_path / "tokenizer.json", content)
    settings = gguf_vocabulary(content, kind, unused=["[PAD900]", "[PAD901]"])
    folder = load(tmp_path)
    file = npgpt.load_tokenizer(write_gguf(tmp_path / "x.gguf", settings, {}))
    assert isinstance(file, Tokenizer)
    assert file.rules == folder.rules
    assert file.bytes_of == folder.bytes_of
    for text in [*odd_texts(rng, 200), "[PAD900]"]:
        ids = folder.encode(text, allowed_special="all")
        assert file.encode(text, allowed_special="all") == ids, text
        assert file.encode(text) == folder.encode(text), text
