"""Cuts before byte-pair merging: whole tokens, white space without end, bytes that are missing."""

from __future__ import annotations

import time

import pytest
import regex  # type: ignore[import-untyped]

from npgpt.text.text_pieces import (
    GPT2_SPLIT,
    cut_long_space,
    cut_tokens,
    first_without,
    well_formed,
)
from npgpt.text.tokenizer import Tokenizer
from tests.text.naive_bpe import WORDS

LONG = 100_000
BYTES = {bytes([b]): b for b in range(256)}


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
        longer = {word.encode() for word in words} - BYTES.keys()
        ranks = {**BYTES, **{word: 256 + n for n, word in enumerate(sorted(longer))}}
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
    assert list(cut_long_space(longer)) == [longer[:-2], longer[-2:]]
    assert [word for part in cut_long_space(longer) for word in WORDS.findall(part)] == (
        WORDS.findall(longer)
    )
    assert list(cut_long_space(f"a{spaces}")) == [f"a{spaces}"]
    assert list(cut_long_space(f"a{spaces[:-1]}b")) == [f"a{spaces[:-1]}b"]
    assert list(cut_long_space("")) == [""]


@pytest.mark.parametrize("char", "\x1c\x1f\u200b\ufeffx")
def test_cut_long_space_is_made_for_white_space_alone(char):
    """Python's own `\\s` has U+001C to U+001F, which the splitting engine takes for signs."""
    text = f"{char * LONG} {char * LONG}b"
    assert list(cut_long_space(text)) == [text]


@pytest.mark.parametrize("run", ["a", "地", "0", "!", "'", " a", " ", "\n", "\u3000"])
def test_no_run_of_characters_is_too_long_or_slow(run):
    """The engine alone panics at half a million spaces before a word."""
    tokenizer = Tokenizer("bytes", mergeable_ranks=BYTES, special_tokens={})
    start = time.perf_counter()
    text = f"x{run * 700_000}b"
    assert tokenizer.encode(text) == list(text.encode())
    assert time.perf_counter() - start < 10


def test_white_space_at_the_end_may_be_as_long():
    tokenizer = Tokenizer("bytes", mergeable_ranks=BYTES, special_tokens={})
    assert tokenizer.encode(" " * 1_500_000) == [32] * 1_500_000


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
