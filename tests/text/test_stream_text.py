"""Ids to text: whole characters as the tokens come in, invalid bytes, ids without a token."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.text.tokenizer import Tokenizer, decodable_ids, stream_text

REPLACED = "\N{REPLACEMENT CHARACTER}"
END_OF_TEXT = 256


@pytest.fixture(scope="module")
def tokenizer():
    """Each byte is its own token, and a token that starts one character and ends another."""
    ranks = {bytes([b]): b for b in range(256)}
    half = "想".encode()
    return Tokenizer(
        "bytes", mergeable_ranks={**ranks, half[1:] + half[:1]: 300}, special_tokens={"<|e|>": 256}
    )


def arrivals(tokenizer, tokens):
    """(how many tokens were read, what they made) for each piece of text."""
    read = 0

    def counted():
        nonlocal read
        for token in tokens:
            read += 1
            yield token

    return [(read, piece) for piece in stream_text(tokenizer, counted())]


@pytest.mark.parametrize("text", ["地", "想", "Ondřej Čertík", "😁", "a😁b", "a�b", ""])
def test_a_character_comes_with_its_last_byte(tokenizer, text):
    ends = np.cumsum([len(char.encode()) for char in text])
    assert arrivals(tokenizer, text.encode()) == list(zip(ends, text, strict=True))


def test_a_token_may_end_one_character_and_start_another(tokenizer):
    first, second, third = "想".encode()
    tokens = [first, 300, 300, second, third, END_OF_TEXT]
    assert arrivals(tokenizer, tokens) == [(2, "想"), (3, "想"), (5, "想"), (6, "<|e|>")]


def test_an_unfinished_character_is_flushed_at_the_end(tokenizer):
    assert arrivals(tokenizer, "a地".encode()[:-1]) == [(1, "a"), (3, REPLACED)]
    assert arrivals(tokenizer, [0xFF, 0x61]) == [(1, REPLACED), (2, "a")]


def test_pieces_join_to_the_decoded_text(tokenizer, rng):
    for _ in range(100):
        ids = rng.integers(257, size=30)
        pieces = list(stream_text(tokenizer, ids))
        assert "".join(pieces) == tokenizer.decode(ids.tolist())
        assert "" not in pieces


def test_invalid_bytes_decode_to_u_fffd(tokenizer, rng):
    assert tokenizer.decode([0xAD, 0x61]) == f"{REPLACED}a"
    for _ in range(100):
        ids = rng.integers(256, size=30).tolist()
        assert tokenizer.decode_bytes(ids) == bytes(ids)
        assert tokenizer.decode(ids) == bytes(ids).decode("utf-8", "replace")
        assert tokenizer.decode_batch([ids], errors="ignore") == [
            bytes(ids).decode("utf-8", "ignore")
        ]


@pytest.mark.parametrize("token", [-1, 257, 2**40])
def test_ids_without_a_token_are_named(tokenizer, token):
    with pytest.raises(ValueError, match=f"^id {token} has no token in bytes"):
        tokenizer.decode([97, token])
    with pytest.raises(ValueError, match=f"^id {token} has no token in bytes"):
        list(stream_text(tokenizer, [97, token]))


def test_decodable_ids(tokenizer):
    assert np.flatnonzero(~decodable_ids(tokenizer, 303)).tolist() == [*range(257, 300), 301, 302]
    assert decodable_ids(tokenizer, 5).tolist() == [True] * 5
    assert decodable_ids(tokenizer, 5).dtype == np.bool_
