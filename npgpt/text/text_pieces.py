"""What happens to a text before byte-pair merging: GPT-2's split pattern, and cuts before it.

Leaves out the merging itself, which tiktoken does, and normalisation, which GPT-2 does not do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import pairwise

# Contractions; words, numbers, other signs, each with a space before it; white space, whose last
# character is left to the word that follows. Possessive (++): no shorter match could succeed.
GPT2_SPLIT = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"

_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # Unicode's White_Space
_LONG_SPACE = re.compile(f"(?<![{_SPACE}])[{_SPACE}]{{100000,}}(?=[^{_SPACE}])")


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
    """Surrogate pairs joined to the character they stand for, lone ones replaced by U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
