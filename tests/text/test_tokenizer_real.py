"""Real vocabularies and the live reference: GPT-2's published ids, single letters, Hugging Face."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import numpy as np
import pytest

from npgpt.text.tokenizer import Tokenizer, decodable_ids, stream_text, tokenizer_from_folder
from tests.text.naive_bpe import (
    CORPUS,
    END_OF_TEXT,
    added,
    number,
    train,
    write_folder,
    write_whole,
)

PUBLISHED = {
    "The cat sat on the": [464, 3797, 3332, 319, 262],
    "hello world": [31373, 995],
    "0" * 17: [8269, 10535, 830],
    "San Francisco is": [15017, 6033, 318],
    "Cars are": [34, 945, 389],
    "Ondřej Čertík was born in": [
        *(46, 358, 129, 247, 68, 73, 34754, 234, 861, 8836, 74, 373, 4642, 287)
    ],
    "Hello, y'all! How are you 😁 ?我想在apple工作1314151天～": [
        *(15496, 11, 331, 6, 439, 0, 1374, 389, 345, 30325, 223, 5633, 22755, 239, 46349, 111),
        *(28839, 101, 18040, 32432, 98, 43291, 1485, 1415, 24309, 25465, 171, 121, 252),
    ],
}


@pytest.fixture(scope="module")
def gpt2(data_dir: Path) -> Tokenizer:
    tokenizer = tokenizer_from_folder(data_dir / "gpt2-vocab")
    assert isinstance(tokenizer, Tokenizer)
    return tokenizer


def random_texts(rng: np.random.Generator, count: int) -> list[str]:
    """A quarter tricky characters, the others from all of Unicode but the surrogates."""
    tricky = [ord(c) for c in " \n\t\r\x0b\x1c\x1f\x85\xa0\u2003\u200b\u3000'sdtmlv09é地😁!-"]
    kinds = (tricky, range(0x250), range(0xD800), range(0xE000, 0x110000))
    return ["".join(map(chr, rng.choice(kinds[n % 4], size=60))) for n in range(count)]


@pytest.mark.real
def test_gpt2_has_50257_tokens(gpt2):
    assert (gpt2.n_vocab, gpt2.eot_token, gpt2.special_tokens_set) == (50257, 50256, {END_OF_TEXT})
    assert decodable_ids(gpt2, 50304).nonzero()[0].tolist() == list(range(50257))


@pytest.mark.real
@pytest.mark.parametrize("text", PUBLISHED)
def test_gpt2_makes_the_published_ids(gpt2, text):
    ids = PUBLISHED[text]
    assert gpt2.encode(text) == ids
    assert gpt2.decode(ids) == "".join(stream_text(gpt2, ids)) == text
    assert "\N{REPLACEMENT CHARACTER}" not in list(stream_text(gpt2, ids))


@pytest.mark.real
def test_gpt2_decodes_byte_for_byte(gpt2):
    assert gpt2.decode([88, 318, 5633]) == "y is ?"
    assert gpt2.decode_bytes([22755, 239, 46349, 111]) == "我想".encode()
    assert gpt2.encode(END_OF_TEXT) == [27, 91, 437, 1659, 5239, 91, 29]
    assert gpt2.encode(END_OF_TEXT, allowed_special="all") == [50256]


@pytest.mark.real
def test_gpt2_loads_fast(gpt2, data_dir):
    """A fifth of a second. To copy a tokenizer takes a sixth of that: a measure on any machine."""
    start = time.process_time()
    pickle.loads(pickle.dumps(gpt2))
    middle = time.process_time()
    tokenizer_from_folder(data_dir / "gpt2-vocab")
    assert time.process_time() - middle < 15 * (middle - start)


@pytest.mark.real
def test_gpt2_round_trips_books(gpt2, data_dir):
    for path in sorted((data_dir / "corpus").glob("*.txt"))[:3]:
        text = path.read_text(encoding="utf-8")
        assert gpt2.decode(gpt2.encode(text)) == text


@pytest.mark.real
def test_a_vocabulary_of_single_letters(data_dir):
    folder = data_dir / "checkpoints" / "slm4096"
    tokenizer = tokenizer_from_folder(folder)
    text = (folder / "corpus.txt").read_text(encoding="utf-8")
    ids = tokenizer.encode(text)
    assert len(ids) == len(text) == 4096
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode("\n Q:") == [0, 1, 23, 8]
    for char in "ä€":
        with pytest.raises(ValueError, match=f"^'{char}' .*, character 2 of the text"):
            tokenizer.encode(f"A {char}")


@pytest.mark.real
@pytest.mark.hf
def test_gpt2_equals_the_reference_on_random_text(gpt2, data_dir, hf, rng):
    from transformers import GPT2Tokenizer

    folder = data_dir / "gpt2-vocab"
    reference = GPT2Tokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    for text in [*PUBLISHED, CORPUS, *random_texts(rng, 400)]:
        assert gpt2.encode(text) == reference(text)["input_ids"]
    text = f"one{END_OF_TEXT} two "
    assert gpt2.encode(text, allowed_special="all") == reference(text)["input_ids"]


@pytest.mark.hf
def test_small_vocabularies_equal_the_reference(tmp_path, hf, rng):
    """Single bytes above the merges, added words, one inside another, special tokens."""
    from tokenizers import Tokenizer as Reference

    merges = train(CORPUS, 40)
    vocab = number(merges, first_bytes=[b"t", b" "])
    words = enumerate(("地", "dog", "dog sat", "0a"), start=len(vocab))
    eot = added(END_OF_TEXT, vocab[END_OF_TEXT], special=True)
    entries = [eot, *(added(word, token, special=False) for token, word in words)]
    write_whole(write_folder(tmp_path, vocab, merges), vocab, merges, added_tokens=entries)
    reference = Reference.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenizer_from_folder(tmp_path)
    mixed = ["".join(rng.permutation([*CORPUS, "dog", END_OF_TEXT])) for _ in range(200)]
    for text in [CORPUS, *mixed, *random_texts(rng, 200)]:
        assert tokenizer.encode(text, allowed_special="all") == reference.encode(text).ids


@pytest.mark.hf
def test_a_folder_that_transformers_saved(tmp_path, hf):
    """Whatever files it writes, they load, and give the ids that it gives."""
    from transformers import GPT2Tokenizer

    merges = train(CORPUS, 40)
    write_folder(tmp_path, number(merges), merges)
    reference = GPT2Tokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"))
    reference.add_tokens(["npgpt", "地x"])
    reference.add_special_tokens({"pad_token": "<pad>"})
    reference.save_pretrained(tmp_path / "saved")
    tokenizer = tokenizer_from_folder(tmp_path / "saved")
    assert isinstance(tokenizer, Tokenizer)
    for text in (CORPUS, "npgpt 地x<pad>the", f"{END_OF_TEXT}the"):
        ids = tokenizer.encode(text, allowed_special="all")
        assert ids == reference(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.special_tokens_set == {END_OF_TEXT, "<pad>", "npgpt", "地x"}
    assert tokenizer.added_words == {"npgpt", "地x"}
