"""The merges of a vocabulary: GPT-2's byte alphabet, the order of ids, merges that never happen."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from npgpt.text.byte_pairs import byte_alphabet, bytes_of_products, never_applied
from npgpt.text.tokenizer import Tokenizer
from tests.text.naive_bpe import CORPUS, Merge, in_writing, merge_all, number, train


def parts(*pairs: str) -> dict[int, tuple[str, str]]:
    split = (pair.partition(" ") for pair in pairs)
    return {n: (left, right) for n, (left, _, right) in enumerate(split, start=1)}


def random_merges(rng: np.random.Generator, count: int) -> list[Merge]:
    """Merges of a's and b's, each of two tokens made before, no product twice; many are dead."""
    tokens = [b"a", b"b"]
    merges: list[Merge] = []
    while len(merges) < count:
        left, right = tokens[rng.integers(len(tokens))], tokens[rng.integers(len(tokens))]
        if left + right not in tokens:
            merges.append((left, right))
            tokens.append(left + right)
    return merges


def judged(merges: Sequence[Merge]) -> list[bool]:
    tokens = [b"a", b"b", *(left + right for left, right in merges)]
    pairs = [[tokens.index(left), tokens.index(right)] for left, right in merges]
    return [bool(dead) for dead in never_applied(np.array(pairs).reshape(-1, 2), 2)]


def test_byte_alphabet():
    alphabet = byte_alphabet()
    assert len(alphabet) == 256
    assert set(alphabet.values()) == {bytes([b]) for b in range(256)}
    assert alphabet["!"] == b"!"
    assert alphabet["é"] == b"\xe9"
    assert [alphabet[c] for c in "ĠĊĀġŁłŃ"] == [
        b" ",
        b"\n",
        b"\0",
        b"\x7f",
        b"\x9f",
        b"\xa0",
        b"\xad",
    ]


@pytest.mark.hf
def test_byte_alphabet_is_that_of_the_reference(hf):
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    assert byte_alphabet() == {c: bytes([b]) for b, c in bytes_to_unicode().items()}


def test_bytes_of_products():
    vocab = {"Ġ": 9, "a": 0, "Ċ": 3, "Ġa": 4, "ĠaĊ": 5, "<s>": 1}
    made = bytes_of_products(vocab, parts("Ġ a", "Ġa Ċ"), "merges.txt line")
    assert made == {"Ġ": b" ", "a": b"a", "Ċ": b"\n", "Ġa": b" a", "ĠaĊ": b" a\n"}


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (
            ("a b", "ab x"),
            "line 2: the merge 'ab x' needs the token 'x', which the vocabulary lacks",
        ),
        (
            ("a b", "b b"),
            "line 2: the merge 'b b' needs the token 'bb', which the vocabulary lacks",
        ),
        (
            ("ab c", "a b"),
            "line 1: the merge 'ab c' joins 'ab', which is neither a byte nor made by",
        ),
        (
            ("<s> a",),
            "line 1: the merge '<s> a' joins '<s>', which is neither a byte nor made by an",
        ),
        (("a b", "b c", "ab c", "a bc"), "line 4: the merge 'a bc' makes a token that an earlier"),
        (
            ("b c", "a b"),
            "line 2: the merge 'a b' makes id 3, which is below the id that the merge",
        ),
        (("a b", "b c", "a bc"), "line 3: the merge 'a bc' can never be applied, because earlier"),
    ],
)
def test_merges_that_do_not_fit(pairs, message):
    vocab = {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5, "<s>": 6, "<s>a": 7}
    with pytest.raises(ValueError, match=f"^merges.txt {message}"):
        bytes_of_products(vocab, parts(*pairs), "merges.txt line")


def test_a_merge_never_happens_when_an_earlier_one_joins_across_its_border():
    """(a, a) comes before (a, aa) and takes its first two a's; (aa, a) is what is left of aaa."""
    assert judged([(b"a", b"a"), (b"a", b"aa")]) == [False, True]
    assert judged([(b"a", b"a"), (b"aa", b"a")]) == [False, False]
    assert judged([(b"a", b"b"), (b"b", b"a"), (b"a", b"ba")]) == [False, False, True]
    assert judged([]) == []


def test_a_merge_that_never_happens_would_make_other_ids():
    merges = [(b"a", b"b"), (b"b", b"c"), (b"a", b"bc")]
    ids = {b"a": 0, b"b": 1, b"c": 2, b"ab": 3, b"bc": 4, b"abc": 5}
    by_bytes = Tokenizer("abc", mergeable_ranks=ids, special_tokens={}).encode("abc")
    assert by_bytes == [5]
    assert [ids[token] for token in merge_all(b"abc", merges)] == [3, 2]


def test_never_applied_is_what_merging_the_product_says(rng):
    verdicts = []
    for _ in range(150):
        merges = random_merges(rng, 12)
        # A merge that needs one that cannot happen is judged as if it could: ask only up to there.
        for n, verdict in enumerate(judged(merges)):
            left, right = merges[n]
            assert verdict == (merge_all(left + right, merges[:n]) != [left, right])
            verdicts.append(verdict)
            if verdict:
                break
    assert 50 < sum(verdicts) < len(verdicts) - 50


def test_joining_bytes_equals_joining_pairs_once_the_merges_are_sound(rng):
    """All texts of up to nine letters, vocabularies of the merges that can happen."""
    texts = ["".join(t) for n in range(1, 10) for t in itertools.product("ab", repeat=n)]
    for _ in range(5):
        merges: list[Merge] = []
        made = [b"a", b"b"]
        while len(merges) < 12:
            merge = made[rng.integers(len(made))], made[rng.integers(len(made))]
            if b"".join(merge) not in made and not any(judged([*merges, merge])):
                merges.append(merge)
                made.append(b"".join(merge))
        ids = {b"a": 1000, b"b": 0, **{x + y: n for n, (x, y) in enumerate(merges, start=1)}}
        tokenizer = Tokenizer("ab", mergeable_ranks=ids, special_tokens={})
        for text in texts:
            tokens = merge_all(text.encode(), merges)
            assert tokenizer.encode(text) == [ids[token] for token in tokens]


def test_trained_merges_are_sound():
    merges = train(CORPUS, 40)
    made = bytes_of_products(number(merges), dict(enumerate(in_writing(merges))), "merges.txt line")
    assert list(made.values())[256:] == [left + right for left, right in merges]
