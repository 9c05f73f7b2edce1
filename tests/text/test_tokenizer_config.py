"""Every setting of tokenizer_config.json is obeyed, changes nothing, or is named."""

from __future__ import annotations

import json

import pytest

import npgpt
from npgpt.text.tokenizer_config import KINDS, NO_CHANGE, read_tokenizer_config
from npgpt.text.word_pieces import load_word_pieces
from tests.builders.bert import write_tiny_bert
from tests.builders.gpt2 import write_byte_vocabulary
from tests.builders.vocabularies import word_level, write_foreign

ROWS = {
    "byte pairs": lambda folder: write_byte_vocabulary(folder),
    "another kind": lambda folder: write_foreign(folder, word_level()),
    "word pieces": lambda folder: write_tiny_bert(folder),
}


def load(row, folder, settings):
    ROWS[row](folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return load_word_pieces(folder) if row == "word pieces" else npgpt.load_tokenizer(folder)


@pytest.mark.usefixtures("tokenizers")
@pytest.mark.parametrize("row", ROWS)
def test_what_changes_nothing_is_passed_over(tmp_path, row) -> None:
    load(row, tmp_path, {**dict.fromkeys(NO_CHANGE, "x"), "future": None, "new": False})


@pytest.mark.usefixtures("tokenizers")
@pytest.mark.parametrize(
    ("row", "name"),
    [
        *((row, "split_special_tokens") for row in ROWS),
        ("byte pairs", "do_lower_case"),
        ("another kind", "do_lower_case"),
        ("word pieces", "add_prefix_space"),
    ],
)
def test_what_may_change_ids_is_named(tmp_path, row, name) -> None:
    with pytest.warns(
        UserWarning, match=rf"tokenizer_config\.json: npgpt does nothing about {name}"
    ):
        load(row, tmp_path, {name: True})


@pytest.mark.usefixtures("tokenizers")
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("bos_token", 7, "a text or an object or null"),
        ("tokenizer_class", 7, "a text or null"),
        ("additional_special_tokens", "<a>", "an array or an object or null"),
        ("add_bos_token", "yes", "true or false or null"),
        ("do_lower_case", 1, "true or false or null"),
        ("strip_accents", "no", "true or false or null"),
    ],
)
def test_wrong_kinds_are_named(tmp_path, row, name, value, kind) -> None:
    with pytest.raises(
        ValueError, match=f"tokenizer_config.json: {name} is .*, but must be {kind}"
    ):
        load(row, tmp_path, {name: value})


def test_null_is_as_good_as_nothing(tmp_path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(dict.fromkeys(KINDS)))
    assert read_tokenizer_config(tmp_path) == dict.fromkeys(KINDS)
