"""A vocabulary of GPT-2's kind, learned from texts: byte pairs, through the package tokenizers.

Joining the most frequent pair of tokens, again and again, is the package's work. What is decided
here is where a text is cut first, and which token has which id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from npgpt.text.byte_pairs import byte_alphabet, bytes_of_products
from npgpt.text.foreign import failures_named, package
from npgpt.text.tokenizer import Tokenizer

END_OF_TEXT = "<|endoftext|>"
FEWEST_IDS = 257  # the single bytes and end-of-text
# GPT2_SPLIT, but no piece is longer than 256 characters: the time for one grows with its square.
SHORT_PIECES = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}{1,256}| ?\p{N}{1,256}| ?[^\s\p{L}\p{N}]{1,256}"
    r"|\s{1,256}(?!\S)|\s"
)
# Ideographs, radicals, strokes, kana, bopomofo, hangul, and their punctuation: 、。《》，！ and the
# like. Quotes, dashes and dots that other scripts share (“ ” — … ·) are not among them.
CJK = (
    "\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
    "\U0001aff0-\U0001b16f\U0001f200-\U0001f2ff\U00020000-\U0003ffff"
)
LATER_BYTES = bytes(range(0x80, 0xC0))  # of a character in UTF-8; the first is never one of these
_BEFORE_SPACE = re.compile(r"(?<=\S)(?=\s)")  # GPT-2's pieces end here, whatever comes after

Merge = tuple[str, str]  # two tokens in the byte alphabet


def learn_merges(texts: Sequence[str], size: int, *, merge_cjk: bool = False) -> list[Merge]:
    """The merges of a vocabulary of `size` ids, in order; fewer where no more pairs occur twice.

    The most frequent pair of neighbours becomes a token, then the most frequent one of what is
    there by now, and so on (Sennrich et al., 2016, https://arxiv.org/abs/1508.07909). The same
    texts give the same merges.

    Args:
        size: how many ids there may be, the 256 bytes and end-of-text included.
        merge_cjk: whether a token may reach from a character of Chinese, Japanese or Korean into
            the next one. Otherwise such a character is one token or several, in every text; for
            that a few letters of other scripts may have to stand alone, see `_cut_by`.

    Raises ImportError without the package tokenizers.
    """
    package("Learning byte pairs needs the package tokenizers")
    most = sum(len(text.encode("utf-8")) for text in texts)  # each merge takes away a token
    count = min(size - FEWEST_IDS, most)
    if merge_cjk:
        return _most_frequent_pairs(texts, count)
    characters: set[str] = set().union(*texts)
    alone: set[str] = set()
    while True:
        merges = _most_frequent_pairs(texts, count, f"[{CJK}{''.join(sorted(alone))}]")
        tails, heads = _cut_by(merges)
        cut = {c for c in characters if c.encode().endswith(tails) or c.encode().startswith(heads)}
        if cut <= alone:
            return merges
        alone |= cut


def _cut_by(merges: Sequence[Merge]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """What tokens of several characters have of one that they cut, if it may be Chinese elsewhere.

    Returns its last bytes, where a token begins within it, and its first ones, where a token ends
    within it. í ends in the byte AD and д begins with D0. A token "AD D0" would reach across the
    border in 中д, too, since 中 is E4 B8 AD. A space and D0 is harmless: nothing Chinese has D0.
    """
    alphabet = byte_alphabet()
    some = map(chr, range(0, 0x40000, 16))  # one of all that differ in the last four bits only
    begun = {c.encode()[:-n] for c in re.findall(f"[{CJK}]", "".join(some)) for n in (1, 2, 3)}
    tails, heads = set(), set()
    for left, right in merges:
        token = b"".join(alphabet[char] for char in left + right)
        to_last = token.rstrip(LATER_BYTES)  # up to where its last character begins
        if len(to_last) > 1:
            tails.add(token[: -len(token.lstrip(LATER_BYTES))])
            heads.add(token[len(to_last) - 1 :])
    return tuple(tails - {b""}), tuple(heads & begun)


def _most_frequent_pairs(texts: Sequence[str], count: int, alone: str | None = None) -> list[Merge]:
    """The first merges of a text that is cut as GPT-2 does, and at each character `alone`."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    split, alphabet = pre_tokenizers.Split, list(byte_alphabet())
    cuts = [split(Regex(each), "isolated") for each in (SHORT_PIECES, alone) if each]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, to_bytes])
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + count,
        min_frequency=2,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    with failures_named("learning byte pairs"):
        parts = (part for text in texts for part in _parts(text))
        tokenizer.train_from_iterator(parts, trainer)
    return [(left, right) for left, right in json.loads(tokenizer.to_str())["model"]["merges"]]


def _parts(text: str, size: int = 2**16) -> Iterator[str]:
    """`text` in parts of about `size` characters, for all threads; no piece of GPT-2's is cut."""
    begin = 0
    while begin < len(text):
        border = _BEFORE_SPACE.search(text, begin + size)
        end = border.start() if border else len(text)
        yield text[begin:end]
        begin = end


def ids_of(merges: Sequence[Merge] = ()) -> dict[str, int]:
    """Token -> id, as in vocab.json: the bytes by their value, the merges, then end-of-text."""
    vocab = {char: byte[0] for char, byte in byte_alphabet().items()}
    vocab |= {left + right: n for n, (left, right) in enumerate(merges, start=256)}
    return vocab | {END_OF_TEXT: 256 + len(merges)}


def files_of(merges: Sequence[Merge]) -> dict[str, str]:
    """vocab.json and merges.txt of these merges, as GPT-2 has them: name -> text."""
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in merges), ""]
    return {
        "vocab.json": json.dumps(ids_of(merges), ensure_ascii=False),
        "merges.txt": "\n".join(lines),
    }


def tokenizer_of(merges: Sequence[Merge] = ()) -> Tokenizer:
    """The tokenizer with the ids of `ids_of`; without merges it has one id per byte."""
    vocab = ids_of(merges)
    made = bytes_of_products(vocab, dict(enumerate(merges)), "learned merge")
    return Tokenizer(
        "learned byte pairs" if merges else "bytes",
        mergeable_ranks={text: vocab[token] for token, text in made.items()},
        special_tokens={END_OF_TEXT: vocab[END_OF_TEXT]},
    )
