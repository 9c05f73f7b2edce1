"""The ways of SmolLM and Llama 3 to cut a text, by hand and against Hugging Face's tokenizers."""

from __future__ import annotations

import json
from typing import Any

import pytest
import regex  # type: ignore[import-untyped]

from npgpt.text.split_patterns import LLAMA3_SPLIT, SMOLLM_SPLIT
from npgpt.text.tokenizer import tokenizer_from_folder
from tests.text.naive_bpe import CORPUS, number, train, whole_file, write_whole

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SMOLLM = {
    "type": "Sequence",
    "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTES],
}
LLAMA3 = {
    "type": "Sequence",
    "pretokenizers": [
        {
            "type": "Split",
            "pattern": {"Regex": LLAMA3_SPLIT},
            "behavior": "Isolated",
            "invert": False,
        },
        {**BYTES, "use_regex": False},
    ],
}
PIECES = [
    "the",
    "cat",
    " ",
    "  ",
    "\n",
    "\r\n",
    "'s",
    "'S",
    "'re",
    "a",
    "1",
    "23",
    "4567",
    "Ⅷ",
    "½",
]
PIECES += ["地", "é", "!", "😁", "\t", ".", "it's", "\u3000", "x1y"]

MERGES = train(CORPUS, 40)
# Each way to make a token of two others, as Llama 3's file has them.
RANKED = [(b"t", b"h"), (b"h", b"e"), (b"t", b"he"), (b"th", b"e"), (b" ", b"the")]


def by_hand(pattern, text):
    return regex.findall(pattern, text)


def test_smollm_by_hand() -> None:
    pieces = by_hand(SMOLLM_SPLIT, "it's 12 cats,  34!\n\n  x  ")
    assert pieces == [
        *("it", "'s", " ", "1", "2", " cats", ",", "  ", "3", "4", "!", "\n\n ", " x", "  "),
    ]


def test_llama3_by_hand() -> None:
    pieces = by_hand(LLAMA3_SPLIT, "It'S 12345 cats,\n\n  x")
    assert pieces == ["It", "'S", " ", "123", "45", " cats", ",\n\n", " ", " x"]


def random_text(rng):
    return "".join(rng.choice(PIECES, size=30))


@pytest.mark.parametrize("pre_tokenizer", [SMOLLM, LLAMA3], ids=["smollm", "llama3"])
def test_folders_give_texts_back(rng, tmp_path, pre_tokenizer) -> None:
    whole = write_whole(tmp_path, number(MERGES), MERGES, pre_tokenizer=pre_tokenizer)
    tokenizer = tokenizer_from_folder(whole)
    for text in (CORPUS, *(random_text(rng) for _ in range(20))):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def ranked_vocabulary():
    """Each product once, in the order of its rank."""
    return number([(token, b"") for token in dict.fromkeys(a + b for a, b in RANKED)])


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
@pytest.mark.parametrize("kind", ["smollm", "llama3", "llama3 ranked"])
def test_ids_equal_those_of_tokenizers(rng, tmp_path, kind) -> None:
    from tokenizers import Tokenizer as Reference

    vocab, merges = number(MERGES), MERGES
    changes: dict[str, Any] = {"pre_tokenizer": SMOLLM if kind == "smollm" else LLAMA3}
    if kind == "llama3 ranked":
        vocab, merges = ranked_vocabulary(), RANKED
        changes["model__ignore_merges"] = True
    write_whole(tmp_path, vocab, merges, **changes)
    reference = Reference.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenizer_from_folder(tmp_path)
    for text in (CORPUS, *(random_text(rng) for _ in range(300))):
        assert tokenizer.encode(text) == reference.encode(text, add_special_tokens=False).ids, text


@pytest.mark.parametrize(
    ("merges", "sentence"),
    [
        (RANKED[:2] + RANKED[3:], "no merge 't he', though all three are tokens"),
        (RANKED[::-1], "makes id .* below the id that the merge before it makes"),
        ([*RANKED, (b"t", b"t")], "needs the token 'tt', which the vocabulary lacks"),
    ],
)
def test_ranked_merges_that_are_not(tmp_path, merges, sentence) -> None:
    content = whole_file(ranked_vocabulary(), merges)
    content["pre_tokenizer"] = LLAMA3
    content["model"]["ignore_merges"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=sentence):
        tokenizer_from_folder(tmp_path)
