"""The models that ship do what weights/README.md says of them."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import npgpt
from npgpt.models.gpt2.model import GPT2

WEIGHTS = Path(__file__).parents[1] / "weights"
# Titles and first lines, of five and of seven characters.
STARTS = (
    *("《山中》王维\n荆溪白石出，", "《春望》杜甫\n国破山河在，", "《江雪》柳宗元\n千山鸟飞绝，"),
    *("《登高》杜甫\n风急天高猿啸哀，", "《清明》杜牧\n清明时节雨纷纷，"),
)


@pytest.fixture(scope="module")
def poems() -> GPT2:
    model = npgpt.from_pretrained("weights/poems")
    assert isinstance(model, GPT2)
    return model


@pytest.mark.parametrize(("name", "most"), [("tales", 20), ("poems", 16)])
def test_they_are_small(name: str, most: int) -> None:
    assert sum(path.stat().st_size for path in (WEIGHTS / name).iterdir()) < most * 1e6


@pytest.mark.parametrize("name", ["tales", "weights/tales", "poems", "weights/poems"])
def test_they_are_found_from_any_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(npgpt.from_pretrained(name), GPT2)


def test_a_character_is_a_token() -> None:
    text = "《登高》杜甫\n风急天高猿啸哀，渚清沙白鸟飞回。\n"
    assert len(npgpt.load_tokenizer("poems").encode(text)) == len(text)


def test_poems_keep_their_form(poems: GPT2, monkeypatch: pytest.MonkeyPatch) -> None:
    """As weights/poem_form.py counts it: 199 of 200 there, at least 18 of 20 here."""
    monkeypatch.syspath_prepend(WEIGHTS)
    form = import_module("poem_form").form
    monkeypatch.setattr("poem_form.rhymes_of", lambda _: set())  # which needs pypinyin
    tokenizer, kept = npgpt.load_tokenizer("poems"), 0
    for start in STARTS:
        ids = tokenizer.encode(start)
        n = len(re.split("[\n，]", start)[1])
        for seed in range(4):
            text = tokenizer.decode([*ids, *poems.generate(ids, seed=seed)]).partition("\n")[2]
            found = form(text, n)
            kept += found.lengths and found.ended
    assert kept >= 18


def test_poems_sample_unless_told_otherwise(poems: GPT2) -> None:
    ids = npgpt.load_tokenizer("poems").encode("《静夜思》李白")
    texts = {tuple(poems.generate(ids, seed=seed)) for seed in range(3)}
    assert len(texts) == 3
    assert {text[-1] for text in texts} == {poems.config.eos_token_id}
    greedy = {tuple(poems.generate(ids, temperature=0, seed=seed)) for seed in range(3)}
    assert len(greedy) == 1
