"""Before byte-pair merging: the ways to split a text, cuts, white space without end."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import regex  # type: ignore[import-untyped]

from npgpt.text.split_patterns import (
    GPT2_SPLIT,
    LLAMA3_SPLIT,
    SMOLLM_SPLIT,
    WRITTEN,
    cut_long_space,
    cut_tokens,
    first_without,
    well_formed,
)
from npgpt.text.tokenizer import Tokenizer, tokenizer_from_folder
from npgpt.text.vocabulary import OtherKind, read_vocabulary
from tests.builders.vocabularies import LLAMA3_REGEX, QWEN2_REGEX, TEKKEN_REGEX, split_then_bytes
from tests.text.naive_bpe import CORPUS, WORDS, number, train, whole_file, write_whole

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SMOLLM = {
    "type": "Sequence",
    "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTES],
}
LLAMA3 = split_then_bytes(LLAMA3_REGEX)
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

LONG = 100_000
SINGLE_BYTES = {bytes([b]): b for b in range(256)}
MERGES = train(CORPUS, 40)
# Each way to make a token of two others, as Llama 3's file has them.
RANKED = [(b"t", b"h"), (b"h", b"e"), (b"t", b"he"), (b"th", b"e"), (b" ", b"the")]


def by_hand(pattern, text):
    return regex.findall(pattern, text)


def test_smollm_by_hand():
    pieces = by_hand(SMOLLM_SPLIT, "it's 12 cats,  34!\n\n  x  ")
    assert pieces == [
        *("it", "'s", " ", "1", "2", " cats", ",", "  ", "3", "4", "!", "\n\n ", " x", "  "),
    ]


def test_llama3_by_hand():
    pieces = by_hand(LLAMA3_SPLIT, "It'S 12345 cats,\n\n  x")
    assert pieces == ["It", "'S", " ", "123", "45", " cats", ",\n\n", " ", " x"]


def random_text(rng):
    return "".join(rng.choice(PIECES, size=30))


@pytest.mark.parametrize("pre_tokenizer", [SMOLLM, LLAMA3], ids=["smollm", "llama3"])
def test_folders_give_texts_back(rng, tmp_path, pre_tokenizer):
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
def test_ids_equal_those_of_tokenizers(rng, tmp_path, kind):
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
def test_ranked_merges_that_are_not(tmp_path, merges, sentence):
    content = whole_file(ranked_vocabulary(), merges)
    content["pre_tokenizer"] = LLAMA3
    content["model"]["ignore_merges"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(OtherKind, match=sentence):
        read_vocabulary(tmp_path)


def test_split_pattern_is_gpt2s(rng):
    """The pattern alone, and in tiktoken's engine, where each word is made a token to be seen."""
    parts = [
        "'s",
        "'re",
        "'ll",
        "'ve",
        "'x",
        "'S",
        *" \n\t\xa0",
        "  ",
        "ab",
        "é地",
        "12",
        "½",
        "!?",
        "_",
        "'",
    ]
    for _ in range(300):
        text = "".join(rng.choice(parts, size=12))
        words = WORDS.findall(text)
        assert regex.findall(GPT2_SPLIT, text) == words
        longer = {word.encode() for word in words} - SINGLE_BYTES.keys()
        ranks = {**SINGLE_BYTES, **{word: 256 + n for n, word in enumerate(sorted(longer))}}
        tokenizer = Tokenizer("words", mergeable_ranks=ranks, special_tokens={})
        tokens = tokenizer.decode_tokens_bytes(tokenizer.encode(text))
        assert [token.decode() for token in tokens] == words


def test_cut_tokens_takes_the_leftmost_and_there_the_longest():
    assert list(cut_tokens("xabab.a+", ["a", "ab", "aba", ".a+", "bab.a+"])) == [
        *((0, "x", False), (1, "aba", True), (4, "b", False), (5, ".a+", True), (8, "", False))
    ]
    assert list(cut_tokens("ab", [])) == [(0, "ab", False)]
    assert list(cut_tokens("", ["a"])) == [(0, "", False)]


@pytest.mark.parametrize("space", [" ", "\n", "\x85", "\xa0", "\u3000", " \t"])
def test_cut_long_space_leaves_the_last_one_to_the_word(space):
    spaces = space * (LONG // len(space))
    longer = f"a{spaces}{space}b"
    assert list(cut_long_space(longer, GPT2_SPLIT)) == [longer[:-2], longer[-2:]]
    parts = cut_long_space(longer, GPT2_SPLIT)
    assert [word for part in parts for word in WORDS.findall(part)] == WORDS.findall(longer)
    assert list(cut_long_space(f"a{spaces}", GPT2_SPLIT)) == [f"a{spaces}"]
    assert list(cut_long_space(f"a{spaces[:-1]}b", GPT2_SPLIT)) == [f"a{spaces[:-1]}b"]
    assert list(cut_long_space("", GPT2_SPLIT)) == [""]


@pytest.mark.parametrize("end", ["b", "1", "Ⅷ", "½", "!"])
def test_smollm_leaves_long_white_space_before_a_digit_in_one_piece(end):
    text = f"a{' ' * LONG}{end}"
    pieces = [
        piece
        for part in cut_long_space(text, SMOLLM_SPLIT)
        for piece in by_hand(SMOLLM_SPLIT, part)
    ]
    assert pieces == by_hand(SMOLLM_SPLIT, text)
    tokenizer = Tokenizer(
        "bytes", mergeable_ranks=SINGLE_BYTES, special_tokens={}, pat_str=SMOLLM_SPLIT
    )
    text = f"a{' ' * 700_000}{end}"
    assert tokenizer.encode(text) == list(text.encode())


@pytest.mark.parametrize("char", "\x1c\x1f\u200b\ufeffx")
def test_cut_long_space_is_made_for_white_space_alone(char):
    """Python's own `\\s` has U+001C to U+001F, which the splitting engine takes for signs."""
    text = f"{char * LONG} {char * LONG}b"
    assert list(cut_long_space(text, GPT2_SPLIT)) == [text]


@pytest.mark.parametrize("run", ["a", "地", "0", "!", "'", " a", " ", "\n", "\u3000"])
def test_no_run_of_characters_is_too_long_or_slow(run):
    """The engine alone panics at half a million spaces before a word."""
    tokenizer = Tokenizer("bytes", mergeable_ranks=SINGLE_BYTES, special_tokens={})
    start = time.perf_counter()
    text = f"x{run * 700_000}b"
    assert tokenizer.encode(text) == list(text.encode())
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("pattern", [GPT2_SPLIT, *WRITTEN.values()])
def test_white_space_at_the_end_may_be_as_long(pattern):
    tokenizer = Tokenizer("bytes", mergeable_ranks=SINGLE_BYTES, special_tokens={}, pat_str=pattern)
    assert tokenizer.encode(" " * 1_500_000) == [32] * 1_500_000


@pytest.mark.parametrize("pattern", WRITTEN.values())
@pytest.mark.parametrize("before", ["", "\n", "a", "!", "!\n", " " * 700_000 + "\n"])
@pytest.mark.parametrize("after", ["a", "!", "1", ""])
def test_long_white_space_with_line_ends(pattern, before, after):
    """Line ends stay in one piece; of the blanks behind them, the last one begins the next."""
    ranks = {**SINGLE_BYTES, b"\n\n": 256, b"  ": 257, b" a": 258, b" !": 259}
    tokenizer = Tokenizer("bytes", mergeable_ranks=ranks, special_tokens={}, pat_str=pattern)
    blanks = tokenizer.encode(before + " " * 700_001 + after)
    assert blanks[-2:] == {"a": [257, 258], "!": [257, 259], "1": [32, 49], "": [257, 32]}[after]
    ends = tokenizer.encode(before.rstrip("\n") + "\n" * 700_002 + after)
    assert ends.count(256) == 350_001


def test_patterns_are_those_of_the_files():
    assert {*WRITTEN} == {LLAMA3_REGEX, QWEN2_REGEX, TEKKEN_REGEX}


def test_first_without():
    assert first_without("abc", b"abcd") is None
    assert first_without("", b"") is None
    assert first_without("ab€cä", b"abc\xe2\x82") == 2
    assert first_without("abä", b"b") == 0


def test_well_formed():
    assert well_formed("aé😁\ufeff") == "aé😁\ufeff"
    assert well_formed(
        "\ufeff\ud83d\ude01a\ude01\ud83d"
    ) == "\ufeff😁a\N{REPLACEMENT CHARACTER}" + ("\N{REPLACEMENT CHARACTER}")
