"""Byte pairs learned from a text: the most frequent ones, none across a character of Chinese."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from npgpt.text import learning
from npgpt.text.byte_pairs import byte_alphabet
from npgpt.text.learning import CJK, SHORT_PIECES, ids_of, learn_merges, tokenizer_of

pytestmark = pytest.mark.usefixtures("tokenizers")
ALPHABET = byte_alphabet()
SIGNS = "aab  \n\t12's,.!é\u3000\xa0中国語。《》ひカㄅ한글Ａ𠀀ß\0"


def random_text(rng, signs=SIGNS, length=2000):
    return "".join(rng.choice([*signs], length))


def in_bytes(token):
    return b"".join(ALPHABET[char] for char in token)


def pieces_of(text, pattern=None):
    """Pieces of the text in the byte alphabet, by this pattern; None: GPT-2's own."""
    from tokenizers import Regex, pre_tokenizers

    cut = [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), "isolated")]
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    return [piece for piece, _ in pre_tokenizers.Sequence([*cut, level]).pre_tokenize_str(text)]


def joined(piece, merge):
    """The tokens of a piece, each occurrence of the pair joined, from the left."""
    out: list[str] = []
    for token in piece:
        if out and (out[-1], token) == merge:
            out[-1] += token
        else:
            out.append(token)
    return out


def test_a_text_whose_pairs_can_be_counted_by_hand():
    """ "ab" stands there 5 times, " ab" 3 times; everything else once."""
    assert learn_merges(["abab ab ab abc"], 300) == [("a", "b"), ("Ġ", "ab")]


@pytest.mark.parametrize("merge_cjk", [False, True])
def test_each_merge_joins_a_pair_that_no_other_exceeds(rng, merge_cjk):
    words = ["low", " lower", " newest", "明月", "，", "春风\n\n", " 春", "wide"]
    text = "".join(rng.choice(words, 300))
    cut = [
        part
        for piece in pieces_of(text)
        for part in ([piece] if merge_cjk else re.split(f"([{CJK}])", in_bytes(piece).decode()))
    ]
    to_char = {byte: char for char, byte in ALPHABET.items()}
    pieces = [
        list(part) if merge_cjk else [to_char[bytes([b])] for b in part.encode()] for part in cut
    ]

    def counted():
        return Counter(pair for piece in pieces for pair in pairwise(piece))

    merges = learn_merges([text], 5000, merge_cjk=merge_cjk)
    assert len(merges) > 20
    for merge in merges:
        assert counted()[merge] == max(counted().values()) >= 2
        pieces = [joined(piece, merge) for piece in pieces]
    assert max(counted().values(), default=0) < 2


def test_a_text_is_cut_as_gpt2_cuts_it(rng):
    texts = [random_text(rng) for _ in range(3)] + ["We'll go 'till \n\n  10km\n\n\n«ça» 中's  "]
    for text in texts:
        assert pieces_of(text, SHORT_PIECES) == pieces_of(text)
        for size in (1, 10, 100):
            parts = [*learning._parts(text, size)]
            assert "".join(parts) == text
            assert [p for part in parts for p in pieces_of(part, SHORT_PIECES)] == pieces_of(text)
    assert len([*learning._parts("a b " * 100, 10)]) > 30


@pytest.mark.parametrize("text", ["x" * 300_000, "\n" * 300_000, "=" * 300_000, "月" * 100_000])
def test_a_long_run_of_one_character_takes_no_time(text):
    assert learn_merges([text], 300, merge_cjk=True)


# Here the last byte of í, ĭ and ŭ and the first of д, ж and з are the most frequent pair: "AD D0".
TAILS = " ".join(a + b for a in "íĭŭ" for b in "джз")
# Here a space and the first byte of signs, as of ⺀: " E2".
HEADS = " €b →b ★b ⅓b ①b"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("others", ["", " 中íд国", "aé,“”— x=1\n"])
def test_no_token_reaches_across_a_border_of_a_character_of_chinese(seed, others):
    """In any text, through the plain merges: 中 ends in the byte AD, as í does."""
    rng = np.random.default_rng(seed)
    merges = learn_merges([random_text(rng), TAILS * 9 + HEADS * 9 + others * 9], 700)
    tokenizer = tokenizer_of(merges)
    text = random_text(rng, SIGNS + TAILS + HEADS + "中中“”—⺀")
    ends = {0, *np.cumsum([len(tokenizer.bytes_of[n]) for n in tokenizer.encode(text)]).tolist()}
    lengths = [0, *np.cumsum([len(c.encode()) for c in text]).tolist()]
    places = [place for match in re.finditer(f"[{CJK}]", text) for place in match.span()]
    assert len(places) > 500
    assert [place for place in places if lengths[place] not in ends] == []


@pytest.mark.parametrize(
    ("learned", "token", "text"), [(TAILS, b"\xad\xd0", "中д"), (HEADS, b" \xe2", " ⺀")]
)
def test_what_cuts_characters_is_not_learned(monkeypatch, learned, token, text):
    merges = learn_merges([learned * 9], 5000)
    letters = {c.encode() for c in re.sub(r"\w\b|\s", "", learned)}  # the first of each word
    assert letters <= {*tokenizer_of(merges).bytes_of.values()}
    assert token not in map(tokenizer_of(merges).bytes_of.get, tokenizer_of(merges).encode(text))
    monkeypatch.setattr(learning, "_cut_by", lambda merges: ((), ()))
    tokenizer = tokenizer_of(learn_merges([learned * 9], 258))
    assert token in map(tokenizer.bytes_of.get, tokenizer.encode(text))


def test_letters_of_other_scripts_join_to_words(rng):
    words = ["".join(rng.choice([*"оеаинтсрвлкмд"], 3)) for _ in range(500)]
    tokens = tokenizer_of(learn_merges([" ".join(rng.choice(words, 5000))], 600)).bytes_of.values()
    assert sum(len(token) == len(" мир".encode()) for token in tokens) > 50


def test_every_sign_of_chinese_japanese_and_korean_is_meant():
    assert all(
        re.fullmatch(f"[{CJK}]", c)
        for c in "中龘㐂𠀀𰻞々〇ぁんァヶㄅㆠ가힣ㄱᄀ、。《》「」，！？：ＡｱￚⅠ"[:-1]
    )
    assert not any(re.fullmatch(f"[{CJK}]", c) for c in "aéßдאहไ“”‘’—…·٣½€😀")


def test_frequent_characters_are_one_token_and_words_only_if_asked():
    text = "床前明月光，疑是地上霜。举头望明月，低头思故乡。\n" * 3 + "明月几时有"
    tokenizer = tokenizer_of(learn_merges([text], 1000))
    assert tokenizer.decode_tokens_bytes(tokenizer.encode("明月，霜")) == [
        c.encode() for c in "明月，霜"
    ]
    across = tokenizer_of(learn_merges([text], 1000, merge_cjk=True))
    assert "明月".encode() in across.bytes_of.values()
    assert len(across.encode(text)) < len(tokenizer.encode(text)) / 2


@pytest.mark.parametrize("merge_cjk", [False, True])
def test_ids_are_those_of_the_merges_applied_one_by_one(rng, merge_cjk):
    """As GPT-2 does it; tiktoken looks at the bytes of tokens only."""
    merges = learn_merges([random_text(rng)], 600, merge_cjk=merge_cjk)
    tokenizer, vocab = tokenizer_of(merges), ids_of(merges)
    text = random_text(rng)
    pieces = [[*piece] for piece in pieces_of(text)]
    for merge in merges:
        pieces = [joined(piece, merge) for piece in pieces]
    assert tokenizer.encode(text) == [vocab[token] for piece in pieces for token in piece]


def test_the_ids_are_the_bytes_the_merges_and_the_end(rng):
    merges = learn_merges([random_text(rng)], 300)
    vocab = ids_of(merges)
    assert [*vocab.values()] == list(range(300))
    assert {vocab[char] for char in ALPHABET} == {*range(256)}
    assert all(vocab[char] == byte[0] for char, byte in ALPHABET.items())
    assert vocab["".join(merges[0])] == 256
    tokenizer = tokenizer_of(merges)
    assert tokenizer.end_of_text == vocab["<|endoftext|>"] == 299
    assert tokenizer_of().encode("é") == [0xC3, 0xA9]


@pytest.mark.parametrize("texts", [[], [""], ["a"], ["中"], ["abc"]])
def test_where_nothing_occurs_twice_nothing_is_learned(texts):
    assert learn_merges(texts, 2**62) == []
    assert learn_merges(["aaaa", *texts], 257) == []


def test_the_same_text_gives_the_same_merges_on_one_thread_and_on_many(tmp_path, rng):
    text = random_text(rng, length=20_000)
    path = tmp_path / "text.txt"
    path.write_bytes(text.encode())
    merges = learn_merges([text], 2000)
    assert learn_merges([text], 2000) == merges
    code = (
        "import json, pathlib, sys; from npgpt.text.learning import learn_merges as learn;"
        f"text = pathlib.Path({str(path)!r}).read_bytes().decode();"
        "json.dump(learn([text], 2000), sys.stdout)"
    )
    env = {**os.environ, "RAYON_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    assert [tuple(pair) for pair in json.loads(run.stdout)] == merges


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r'byte pairs .*: pip install "npgpt\[tokenizers\]"'):
        learn_merges(["aaaa"], 300)
