"""Vocabularies of other kinds: the ids and texts of tokenizers and transformers, and refusals."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt.text.foreign import ForeignTokenizer
from npgpt.text.tokenizer import Tokenizer, decodable_ids, stream_text
from tests.builders.vocabularies import (
    KINDS,
    byte_fallback,
    characters,
    hard_texts,
    word_level,
    write_foreign,
)
from tests.text.naive_bpe import CORPUS, number, train, write_json, write_whole

pytestmark = pytest.mark.usefixtures("tokenizers")


@pytest.fixture(params=KINDS)
def made(request):
    return KINDS[request.param]()


def load(folder, tokenizer, **config) -> ForeignTokenizer:
    loaded = npgpt.load_tokenizer(write_foreign(folder, tokenizer, **config))
    assert isinstance(loaded, ForeignTokenizer)
    return loaded


def changed(tokenizer, **changes):
    """Its tokenizer.json with other values at keys such as `model__dropout`."""
    content = json.loads(tokenizer.to_str())
    for key, value in changes.items():
        *parents, last = key.split("__")
        place = content
        for parent in parents:
            place = place[parent]
        place[last] = value
    return content


def test_ids_and_texts_are_those_of_the_package(tmp_path, made, rng) -> None:
    ours = load(tmp_path, made)
    for text in hard_texts(rng):
        made.encode_special_tokens = False
        ids = ours.encode(text, allowed_special="all")
        assert ids == made.encode(text).ids, text
        assert ours.decode(ids) == made.decode(ids, skip_special_tokens=False), text
        made.encode_special_tokens = True
        assert ours.encode(text) == made.encode(text).ids, text


@pytest.mark.hf
@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_transformers(tmp_path, hf, rng, kind, end) -> None:
    from transformers import AutoTokenizer

    ours = load(tmp_path, KINDS[kind](end=end))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in hard_texts(rng):
        assert ours.encode(text, allowed_special="all") == theirs(text).input_ids, text
        plain = theirs(text, split_special_tokens=True).input_ids
        assert ours.encode(text) == plain, text
        assert ours.decode(plain) == theirs.decode(plain), text


@pytest.mark.hf
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("framed", [False, True])
def test_what_stands_around_a_text(tmp_path, hf, asked, framed) -> None:
    """What tokenizer.json says; where tokenizer_config.json says otherwise, it is said."""
    from transformers import AutoTokenizer

    write_foreign(tmp_path, word_level(start=framed, end=framed), add_eos_token=asked)
    if asked == framed:
        ours = npgpt.load_tokenizer(tmp_path)
    else:
        with pytest.warns(UserWarning, match=f"add_eos_token is {asked}, but tokenizer.json does"):
            ours = npgpt.load_tokenizer(tmp_path)
    ids = AutoTokenizer.from_pretrained(tmp_path)("the cat").input_ids
    assert ours.encode("the cat") == ids
    assert ours.frame == (([1], [2]) if framed else ([], []))


def test_pieces_join_to_the_text(tmp_path, made, rng) -> None:
    ours = load(tmp_path, made)
    for text in hard_texts(rng, 100):
        ids = ours.encode(text)[1:]
        assert "".join(stream_text(ours, ids)) == ours.decode(ids)
        whole, half = ours.decode(ids), len(ids) // 2
        start = ours.decode(ids[:half])
        if half and not start.endswith("\ufffd"):  # in the middle of a character
            assert start + "".join(stream_text(ours, ids[half:], after=ids[:half])) == whole


def test_a_continuation_begins_with_its_space_and_a_text_without(tmp_path) -> None:
    ours = load(tmp_path, byte_fallback())
    ids = ours.encode("the cat")
    assert ids[0] == 1
    assert list(stream_text(ours, ids[1:], after=[1])) == ["the", " cat"]
    assert list(stream_text(ours, ids[2:], after=ids[:2])) == [" cat"]


def test_bytes_wait_for_the_rest_of_their_character(tmp_path) -> None:
    ours = load(tmp_path, byte_fallback())
    ids = ours.encode("a😁b")[2:]
    assert [ours.bytes_of[n] for n in ids] == [b"a", b"\xf0", b"\x9f", b"\x98", b"\x81", b"b"][1:]
    assert list(stream_text(ours, ids, after=[5])) == ["😁", "b"]
    assert list(stream_text(ours, ids[:2] + ids[4:], after=[5])) == ["\ufffdb"]
    assert ours.decode(ids[:3]) == "\ufffd"


def test_the_bytes_of_tokens_are_those_of_the_text(tmp_path) -> None:
    ours = load(tmp_path, byte_fallback())
    text = "  The 猫 sat, 1000 times\n"
    ids = ours.encode(text)
    assert b"".join(ours.bytes_of[n] for n in ids[1:]) == f" {text}".encode()
    assert ours.decode_bytes(ids[1:]) == text.encode()
    assert decodable_ids(ours, 1000).sum() == len(ours.bytes_of) == max(ours.bytes_of) + 1
    with pytest.raises(ValueError, match=r"id 1000 has no token in .*"):
        ours.decode([1000])


def test_special_tokens_are_text_unless_asked_for(tmp_path) -> None:
    ours = load(tmp_path, byte_fallback())
    assert ours.encode("</s>a", allowed_special="all")[:2] == [1, 2]
    assert 2 not in ours.encode("</s>a")
    assert ours.decode(ours.encode("</s>a")[1:]) == "</s>a"
    with pytest.raises(ValueError, match="allowed_special may be 'all' or nothing"):
        ours.encode("a", allowed_special={"</s>"})
    none: Any = None
    assert ours.encode("</s>a", allowed_special=[]) == ours.encode("</s>a")
    with pytest.raises(ValueError, match="allowed_special must be 'all' or a list of texts"):
        ours.encode("a", allowed_special=none)


@pytest.mark.parametrize("odd", [5, None, "ab", [[1]], [1.0], [None], np.array([True])], ids=repr)
def test_what_is_no_list_of_ids_is_refused_in_one_sentence(tmp_path, odd) -> None:
    ours = load(tmp_path, byte_fallback())
    for call in (ours.decode, ours.decode_bytes):
        with pytest.raises(ValueError, match=r"^tokens must be a list of ids, but is "):
            call(odd)


def test_surrogates(tmp_path) -> None:
    ours = load(tmp_path, byte_fallback())
    assert ours.encode("\ud83d\ude01") == ours.encode("😁")
    assert ours.encode("\ud83d") == ours.encode("\ufffd")


def test_characters_without_a_token_for_others(tmp_path) -> None:
    ours = load(tmp_path, characters())
    assert ours.decode(ours.encode("The mat.\n\tand")[1:]) == "The mat.\n\tand"
    assert ours.encode("<s>", allowed_special="all") == [*ours.frame[0]] * 2
    for text, lost in (("The Queen", "'Q'"), ("The\rmat", r"'\\r'"), ("<s>", "'<'")):
        with pytest.raises(ValueError, match=f"^{lost} has no token in the vocabulary of "):
            ours.encode(text)


def test_tokens_that_another_file_adds(tmp_path) -> None:
    made = byte_fallback()
    free = made.get_vocab_size()
    entry = {"content": "[INST]", "special": False, "normalized": False}
    ours = load(tmp_path, made, added_tokens_decoder={str(free): entry, "2": {"content": "</s>"}})
    assert free in ours.encode("the [INST] cat")
    assert ours.added_words == {"[INST]"}
    write_foreign(tmp_path, made, added_tokens_decoder={str(free + 1): entry})
    with pytest.raises(ValueError, match=rf"gives '\[INST\]' the id {free + 1}, but .* {free}\."):
        npgpt.load_tokenizer(tmp_path)


def test_gpt2s_kind_stays_with_tiktoken(tmp_path) -> None:
    merges = train(CORPUS, 30)
    write_whole(tmp_path, number(merges), merges)
    assert isinstance(npgpt.load_tokenizer(tmp_path), Tokenizer)


@pytest.mark.parametrize(
    "change",
    [
        {"pre_tokenizer__add_prefix_space": True},
        {"model__merges": "reversed"},
        {"added_tokens": "stripping"},
        {"normalizer": {"type": "NFKC"}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": ["digits", "bytes"]}},
    ],
)
def test_byte_pairs_that_tiktoken_cannot_do(tmp_path, rng, change) -> None:
    """Another split, ids that do not rise with the merges, …: the package reads them."""
    from tokenizers import Tokenizer as Reference

    merges = train(CORPUS, 30)
    write_whole(tmp_path, number(merges), merges)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    split = content["pre_tokenizer"]
    if change.get("model__merges"):
        vocab = content["model"]["vocab"]
        vocab |= {
            a + b: vocab[c + d]
            for (a, b), (c, d) in zip(in_pairs(content), in_pairs(content)[::-1], strict=True)
        }
    elif change.get("added_tokens"):
        content["added_tokens"][0]["lstrip"] = True
    elif change.get("pre_tokenizer"):
        digits = {"type": "Digits", "individual_digits": False}
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, split]}
    elif change.get("normalizer"):
        content |= change
    else:
        split["add_prefix_space"] = True
    write_json(path, content)
    ours, theirs = npgpt.load_tokenizer(tmp_path), Reference.from_file(str(path))
    assert isinstance(ours, ForeignTokenizer)
    for text in [CORPUS, *hard_texts(rng, 100)]:
        ids = ours.encode(text, allowed_special="all")
        assert ids == theirs.encode(text).ids, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False), text


def in_pairs(content):
    return [tuple(pair) for pair in content["model"]["merges"]]


def refused(folder, content, message) -> None:
    folder.mkdir(exist_ok=True)
    write_json(folder / "tokenizer.json", content)
    with pytest.raises(ValueError, match=message) as caught:
        npgpt.load_tokenizer(folder).encode("a" * 60 + "b")
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_refused(tmp_path) -> None:
    made = word_level()
    vocab = json.loads(made.to_str())["model"]["vocab"]
    refused(
        tmp_path,
        changed(made, model__vocab={**vocab, "x": 3}),
        r"tokenizer\.json: two tokens of model\.vocab share an id",
    )
    refused(tmp_path, changed(made, model__type="Magic"), "is not a tokenizer that can be read")
    refused(
        tmp_path,
        changed(byte_fallback(), model__dropout=0.5),
        r"model\.dropout is 0\.5, so ids are left to chance",
    )
    del vocab["<unk>"]
    refused(
        tmp_path,
        changed(made, model__vocab=vocab, added_tokens=[], post_processor=None),
        "the package tokenizers fails: WordLevel error",
    )


def test_a_regular_expression_that_runs_away(tmp_path, capfd) -> None:
    """The package gives up after ten million steps, by a panic, which is no Exception."""
    endless = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "x"}
    refused(tmp_path, changed(word_level(), normalizer=endless), "the package tokenizers fails: .*")


def test_without_the_package_it_is_named(tmp_path, monkeypatch) -> None:
    write_foreign(tmp_path, word_level())
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r'WordLevel.* pip install "npgpt\[tokenizers\]"'):
        npgpt.load_tokenizer(tmp_path)
