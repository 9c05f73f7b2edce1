"""The content of vocabulary files: what is malformed is refused by name; tokens marked as added."""

from __future__ import annotations

import json

import pytest

from npgpt.text.vocabulary import read_vocabulary
from tests.text.naive_bpe import (
    CORPUS,
    END_OF_TEXT,
    added,
    number,
    train,
    write_folder,
    write_json,
    write_whole,
)

MERGES = train(CORPUS, 30)
VOCAB = number(MERGES)
EOT = VOCAB[END_OF_TEXT]


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path, VOCAB, MERGES)


def refused(folder, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_vocabulary(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"vocab\.json is not valid JSON"),
        ("[" * 100_000, r"vocab\.json is not valid JSON"),
        ('["a"]', r"vocab\.json has to be a JSON object, but is \['a'\]"),
        ('{"a": 0, "b": 0}', r"vocab\.json: 'a' and 'b' share the id 0"),
        ('{"a": 0, "a": 1}', r"vocab\.json is not valid JSON \(the key 'a'"),
        ('{"a": -1}', r"vocab\.json: the id of 'a' is -1, not an integer >= 0"),
        ('{"a": 4294967295}', r"vocab\.json: the id of 'a' is 4294967295"),
        ('{"a": true}', r"vocab\.json: the id of 'a' is True"),
        ('{"a": 1.0}', r"vocab\.json: the id of 'a' is 1\.0"),
        ('{"a": 0, "\\n": 1}', r"vocab\.json: the token '\\n' is not in GPT-2's byte alphabet"),
        ('{"a": 0, "": 1}', r"vocab\.json: the token '' is not in GPT-2's byte alphabet"),
        ('{"a": 0, "éa": 1}', r"vocab\.json: no merge makes the token 'éa', and it is no text"),
        ('{"<a>": 0}', r"vocab\.json has no token for any single byte"),
        ("{}", r"vocab\.json has no token for any single byte"),
    ],
)
def test_a_vocab_json_that_is_none(folder, content, message):
    (folder / "merges.txt").write_text("", encoding="utf-8")
    (folder / "vocab.json").write_text(content, encoding="utf-8")
    refused(folder, message)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Ġ", r"merges\.txt line 3: \['Ġ'\] is not a merge of two tokens"),
        ("a b c", r"merges\.txt line 3: \['a', 'b', 'c'\] is not"),
        ("a ☃", r"merges\.txt line 3: the merge 'a ☃' needs the token '☃'"),
        ("#version 2", r"merges\.txt line 3: the merge '#version 2' needs the token '#version'"),
    ],
)
def test_a_line_that_is_no_merge(folder, line, message):
    (folder / "merges.txt").write_text(f"#version: 0.2\n\n{line}\n", encoding="utf-8")
    refused(folder, message)


def test_files_that_are_not_utf_8(folder):
    (folder / "merges.txt").write_bytes(b"a \xff")
    refused(folder, r"merges\.txt is not UTF-8: invalid start byte at byte 2")
    (folder / "vocab.json").write_bytes(b'{"\xff": 0}')
    refused(folder, r"vocab\.json is not valid JSON")


def tokens_of(folder):
    _, special, plain, _ = read_vocabulary(folder)
    return special, plain


def test_added_tokens_of_tokenizer_json(folder):
    entries = [added("<a b>", 700, special=True), added("地x", 701, special=False)]
    write_whole(folder, VOCAB, MERGES, added_tokens=entries)
    assert tokens_of(folder) == ({END_OF_TEXT: EOT, "<a b>": 700}, {"地x": 701})


def test_added_tokens_of_the_configuration(folder):
    entries = {"700": added("<a>", 0, special=True), "701": added("b c", 0, special=False)}
    write_json(folder / "tokenizer_config.json", {"added_tokens_decoder": entries})
    assert tokens_of(folder) == ({END_OF_TEXT: EOT, "<a>": 700}, {"b c": 701})


def test_added_tokens_json_is_plain_but_for_what_is_named_special(folder):
    write_json(
        folder / "added_tokens.json", {"<a>": 700, "<b>": 701, "<c>": 702, "<d>": 703, "ww": 704}
    )
    assert tokens_of(folder)[1].keys() == {"<a>", "<b>", "<c>", "<d>", "ww"}
    write_json(folder / "tokenizer_config.json", {"pad_token": "<a>", "model_max_length": 8})
    named = {
        "eos_token": {"content": "<b>"},
        "additional_special_tokens": ["<c>", {"content": "<d>"}],
    }
    write_json(folder / "special_tokens_map.json", named)
    special = {"<a>": 700, "<b>": 701, "<c>": 702, "<d>": 703}
    assert tokens_of(folder) == ({END_OF_TEXT: EOT, **special}, {"ww": 704})


def test_an_added_token_may_be_in_the_vocabulary_too(folder):
    """A whole token marked as a plain word is one; a token of merges keeps its id."""
    write_json(folder / "vocab.json", {**VOCAB, "<w>": 600})
    write_json(folder / "added_tokens.json", {"<w>": 600, "at": VOCAB["at"]})
    assert tokens_of(folder) == ({END_OF_TEXT: EOT}, {"<w>": 600, "at": VOCAB["at"]})


def test_files_that_agree_on_an_added_token(folder):
    write_whole(folder, VOCAB, MERGES)
    write_json(folder / "added_tokens.json", {END_OF_TEXT: EOT})
    assert tokens_of(folder) == ({END_OF_TEXT: EOT}, {})


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"a": 1}, r"added_tokens has to be a JSON array"),
        (["a"], r"added_tokens has to be a JSON object, but is 'a'"),
        ([{"content": "<a>"}], r"added_tokens gives '<a>' the id None, not an integer >= 0"),
        ([{"id": 700}], r"added_tokens gives the id 700 to None, which is no text"),
        ([added("", 700, special=True)], r"added_tokens gives the id 700 to '', which is no text"),
        (
            [added("\ud800", 700, special=True)],
            r"added_tokens gives the id 700 to '\\ud800', which is no text",
        ),
        (
            [{**added("<a>", 7, special=True), "lstrip": True}],
            r"added_tokens: '<a>' is marked lstrip, which npgpt",
        ),
        (
            [added("<a>", 700, special=True), added("<a>", 701, special=True)],
            r"added_tokens gives '<a>' the id 701, but another file has 700",
        ),
    ],
)
def test_added_tokens_that_are_none(folder, entries, message):
    content = {"model": {}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}
    (folder / "tokenizer.json").write_text(
        json.dumps({**content, "added_tokens": entries}), encoding="utf-8"
    )
    refused(folder, rf"tokenizer\.json: {message}")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"<a>": 0}, r"the added token '<a>' has the id 0, which vocab\.json or another added"),
        ({"at": 700}, r"the added token 'at' has the id 700, which vocab\.json or"),
        ({"<a>": 700, "<b>": 700}, r"the added token '<b>' has the id 700, which vocab\.json or"),
        (
            {"é": VOCAB["é"]},
            r"vocab\.json: 'é' is an added token, but the vocabulary uses it for oth",
        ),
        ({"<a>": -1}, r"added_tokens\.json gives '<a>' the id -1, not an integer >= 0"),
    ],
)
def test_added_tokens_that_contradict_the_vocabulary(folder, entries, message):
    write_json(folder / "added_tokens.json", entries)
    refused(folder, message)


def test_a_configuration_with_malformed_added_tokens(folder):
    path = folder / "tokenizer_config.json"
    write_json(path, {"added_tokens_decoder": []})
    assert tokens_of(folder) == ({END_OF_TEXT: EOT}, {})
    write_json(path, {"added_tokens_decoder": {"x": {"content": "<a>"}}})
    refused(folder, r"added_tokens_decoder gives '<a>' the id 'x', not an integer >= 0")
    write_json(path, {"added_tokens_decoder": {"700": "<a>"}})
    refused(folder, r"added_tokens_decoder has to be a JSON object, but is '<a>'")
