"""SentencePiece's BPE from a `.gguf` file: llama.cpp's ids, settings, refusals."""

from __future__ import annotations

import sys

import pytest

import npgpt
from tests.builders.gguf import write_gguf
from tests.builders.vocabularies import LINES, byte_fallback, hard_texts, scored_pieces
from tests.text import naive_pieces

pytestmark = pytest.mark.usefixtures("tokenizers")


@pytest.fixture
def load(tmp_path):
    """The tokenizer of a file with changed settings; None takes one out."""

    def loaded(**changes):
        settings = {**scored_pieces(), **changes}
        given = {f"tokenizer.ggml.{k}": v for k, v in settings.items() if v is not None}
        return npgpt.load_tokenizer(write_gguf(tmp_path / "x.gguf", given, {}))

    return loaded


def naive_scores(settings):
    rows = zip(settings["tokens"], settings["scores"], settings["token_type"], strict=True)
    return {token: score for token, score, kind in rows if kind not in (2, 3, 4)}


@pytest.mark.parametrize("order", ["as learned", "at random"])
def test_ids_are_those_of_joining_by_score(load, rng, order) -> None:
    settings = scored_pieces()
    if order == "at random":  # pieces whose parts have lower scores than they themselves
        settings["scores"] = [float(-n) for n in rng.permutation(len(settings["tokens"]))]
    ours, scores = load(**settings), naive_scores(settings)
    for text in [*hard_texts(rng), *LINES]:
        pieces = naive_pieces.encode(text, scores)
        ids = [settings["tokens"].index(piece) for piece in pieces]
        assert ours.encode(text) == [1, *ids], text
        assert ours.decode(ids) == text.replace("▁", " "), text


def test_ids_are_those_of_tokenizer_json(load, rng) -> None:
    ours, theirs = load(), byte_fallback()
    for text in hard_texts(rng):
        assert ours.encode(text, allowed_special="all") == theirs.encode(text).ids, text


def test_tokens_of_every_kind(load) -> None:
    ours = load()
    last = len(scored_pieces()["tokens"]) - 1
    assert ours.encode("[INST]</s>", allowed_special="all") == [1, last, 2]
    assert ours.encode("[INST]</s>")[:2] == [1, last]
    assert 2 not in ours.encode("[INST]</s>")
    the = ours.encode("the")[1:]
    assert ours.encode("the[INST]the")[1:] == [*the, last, *the]  # a space before either
    assert (ours.unknown, ours.end_of_text) == ((0, "<unk>"), 2)
    assert ours.special_ids == {0, 1, 2}


def test_settings_are_obeyed(load) -> None:
    the = load().encode("the")[1:]
    assert load(add_bos_token=False).encode("the") == the
    assert load(add_bos_token=True, add_eos_token=True).encode("the") == [1, *the, 2]
    bare = load(add_space_prefix=False)
    assert bare.decode(bare.encode(" the")[1:]) == " the"
    assert bare.encode(" the") == [1, *the]
    assert load(bos_token_id=5, add_eos_token=True, eos_token_id=1).encode("")[::1] == [5, 1]
    assert load(bos_token_id=None, eos_token_id=None).encode("")[:1] == [1]
    without_bytes = [
        "<unk>" if n == 0 else f"x{n}" if t.startswith("<0x") else t
        for n, t in enumerate(scored_pieces()["tokens"])
    ]
    assert load(tokens=without_bytes).encode("\x01\x02")[1:] == [*load().encode(" ")[1:2], 0]


def test_settings_that_nobody_knows_are_named(load) -> None:
    with pytest.warns(UserWarning, match=r"nothing about tokenizer\.ggml\.new_rule, which may"):
        load(new_rule=True, padding_token_id=0, eot_token_id=7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, r"tokenizer\.ggml: scores is None, but must be an array"),
        ({"scores": [0.0]}, r"has 410 tokens, 410 of them different, but there are 1 scores and"),
        (
            {"scores": [float("nan")] * 410},
            "scores is .*, but must be an array in which each value is a finite number",
        ),
        ({"token_type": None}, "token_type is None, but must be an array"),
        ({"tokens": ["a"] * 410}, "has 410 tokens, 1 of them different"),
        (
            {"tokens": [*map(str, range(409)), "a" * 257]},
            "has one of 257 characters; npgpt reads up",
        ),
        ({"add_bos_token": 1}, r"add_bos_token is 1, but must be true or false"),
        ({"add_space_prefix": "no"}, r"add_space_prefix is 'no', but must be true or false"),
        ({"eot_token_id": "2"}, r"eot_token_id is '2', but must be the id of a token"),
    ],
)
def test_what_is_refused(load, tmp_path, changes, message) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        load(**changes)
    assert str(tmp_path / "x.gguf") in str(caught.value)


def test_without_the_package_it_is_named(load, tmp_path, monkeypatch) -> None:
    load()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r'SentencePiece.* pip install "npgpt\[tokenizers\]"'):
        npgpt.load_tokenizer(tmp_path / "x.gguf")
