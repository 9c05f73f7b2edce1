"""What happens to a text before byte-pair merging: whole tokens are cut out, the rest is split.

BPE merges inside the pieces that a split pattern finds, so a text that is split in another way gets
other ids; vocabularies with a pattern that is not listed here are refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path

# Contractions; words, numbers, other signs, each with a space before it; white space, whose last
# character is left to the word that follows. Possessive (++): no shorter match could succeed.
GPT2_SPLIT = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
# SmolLM cuts out every digit first and splits what lies between as GPT-2 does: a digit takes no
# space with it, and white space before it stays in one piece.
SMOLLM_SPLIT = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++|\p{N}| ?[^\s\p{L}\p{N}]++"
    r"|\s++(?=\p{N})|\s++$|\s+(?!\S)|\s"
)
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

NAMED = {  # tokenizer.ggml.pre, by which llama.cpp knows them
    "gpt-2": GPT2_SPLIT,
    "gpt2": GPT2_SPLIT,
    "smollm": SMOLLM_SPLIT,
    "llama-bpe": LLAMA3_SPLIT,
    "llama3": LLAMA3_SPLIT,
    "llama-v3": LLAMA3_SPLIT,
}

_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # Unicode's White_Space
_LONG_SPACE = re.compile(f"(?<![{_SPACE}])[{_SPACE}]{{100000,}}(?=[^{_SPACE}])")


def named_pattern(name: str, path: Path) -> str:
    """The pattern that llama.cpp knows by this name; ValueError if npgpt does not."""
    if name not in NAMED:
        raise ValueError(
            f"{path}: tokenizer.ggml.pre is {name!r:.60}, but npgpt cuts a text as one of "
            f"{', '.join(NAMED)}."
        )
    return NAMED[name]


def cut_long_space(text: str) -> Iterator[str]:
    """Cut `text` where a very long run of white space meets a word.

    tiktoken's regex engine panics when `\\s+(?!\\S)` meets half a million characters. The cut is
    where GPT2_SPLIT makes it anyway, before the last of them, so that the ids stay the same.
    """
    cuts = [0, *(match.end() - 1 for match in _LONG_SPACE.finditer(text)), len(text)]
    for begin, end in pairwise(cuts):
        yield text[begin:end]


def cut_tokens(text: str, tokens: Collection[str]) -> Iterator[tuple[int, str, bool]]:
    """Cut whole `tokens` out of `text`, the leftmost first, the longest where several begin.

    Yields (start, piece, whether it is one of the tokens), in the order of the text.
    """
    longest_first = sorted(tokens, key=len, reverse=True)
    any_token = "|".join(map(re.escape, longest_first)) or "(?!)"  # (?!) matches nowhere
    begin = 0
    for match in re.finditer(any_token, text):
        yield begin, text[begin : match.start()], False
        yield match.start(), match.group(), True
        begin = match.end()
    yield begin, text[begin:], False


def first_without(text: str, single_bytes: bytes) -> int | None:
    """Index of the first character with a UTF-8 byte that is not in `single_bytes`, or None."""
    missing = text.encode("utf-8").translate(None, single_bytes)
    if not missing:
        return None
    return next(i for i, char in enumerate(text) if missing[0] in char.encode("utf-8"))


def well_formed(text: str) -> str:
    """Surrogate pairs joined to the character they stand for, lone ones replaced by U+FFFD.

    ValueError for what is no text, such as bytes.
    """
    if not isinstance(text, str):
        raise ValueError(f"text must be a str, but is {text!r:.60}.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
