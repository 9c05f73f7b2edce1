"""What happens to a text before byte-pair merging: whole tokens are cut out, the rest is split.

BPE merges inside the pieces that a split pattern finds, so a text that is split in another way gets
other ids; a vocabulary with a pattern that is not listed here is left to the package tokenizers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

# Contractions; words, numbers, other signs, each with a space before it; white space, whose last
# character is left to the word that follows. Possessive (++): no shorter match could succeed.
GPT2_SPLIT = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
# SmolLM cuts out every digit first and splits what lies between as GPT-2 does: a digit takes no
# space with it, and white space before it stays in one piece.
SMOLLM_SPLIT = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++|\p{N}| ?[^\s\p{L}\p{N}]++"
    r"|\s++(?=\p{N})|\s++$|\s+(?!\S)|\s"
)
# White space of the patterns below: up to the last line end, then as GPT-2's.
_LINES = r"|\s*[\r\n]+|\s++$|\s+(?!\S)|\s+"
_SIGNS = r"| ?[^\s\p{L}\p{N}]+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
LLAMA3_SPLIT = rf"{_WORDS}|\p{{N}}{{1,3}}{_SIGNS}[\r\n]*{_LINES}"
QWEN2_SPLIT = rf"{_WORDS}|\p{{N}}{_SIGNS}[\r\n]*{_LINES}"
# Mistral's tekken: a capital letter after a small one begins a word; marks are letters.
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
TEKKEN_SPLIT = (
    rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*|\p{{N}}{_SIGNS}[\r\n/]*{_LINES}"
)
# A pattern as tokenizer.json has it -> as above, where it has `\s++$` for tiktoken's engine: that
# panics when `\s+(?!\S)` meets half a million characters.
WRITTEN = {
    pattern.replace(r"\s++$|", ""): pattern for pattern in (LLAMA3_SPLIT, QWEN2_SPLIT, TEKKEN_SPLIT)
}


class Splitting(NamedTuple):
    """How a text becomes the pieces in which BPE merges."""

    pattern: str
    composed: bool = False  # first into Unicode's NFC: e and an accent become one character
    ranked: bool = False  # a piece that is a token is taken whole: see `bytes_of_ranked`


LLAMA3 = Splitting(LLAMA3_SPLIT, ranked=True)
NAMED = {  # tokenizer.ggml.pre, by which llama.cpp knows them
    "gpt-2": Splitting(GPT2_SPLIT),
    "gpt2": Splitting(GPT2_SPLIT),
    "smollm": Splitting(SMOLLM_SPLIT),
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "qwen2": Splitting(QWEN2_SPLIT, composed=True),  # llama.cpp leaves NFC out, Qwen does not
    "tekken": Splitting(TEKKEN_SPLIT, ranked=True),
}
QWENS = ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe")  # model_type, where no class is named
CLASSES = {  # tokenizer_class, which decides where there is no tokenizer.json
    "GPT2Tokenizer": Splitting(GPT2_SPLIT),
    "Qwen2Tokenizer": Splitting(QWEN2_SPLIT, composed=True),
}

_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # Unicode's White_Space
_BLANK = _SPACE.replace("\t-\r", "\t\v\f")  # without line ends


def _long_run(characters: str) -> re.Pattern[str]:
    return re.compile(f"(?<![{characters}])[{characters}]{{100000,}}(?=[^{_SPACE}])")


_LONG_SPACE = _long_run(_SPACE)
_LONG_BLANK = _long_run(_BLANK)


def named_splitting(name: str, path: Path) -> Splitting:
    """The splitting that llama.cpp knows by this name; ValueError if npgpt does not."""
    if name not in NAMED:
        raise ValueError(
            f"{path}: tokenizer.ggml.pre is {name!r:.60}, but npgpt cuts a text as one of "
            f"{', '.join(NAMED)}."
        )
    return NAMED[name]


def written_pattern(step: Mapping[str, Any]) -> str | None:
    """The pattern of a "Split" of tokenizer.json that keeps all of a text; None for another.

    "Removed" and `invert` remove what lies between two matches, which is nothing here.
    """
    kept = (step.get("behavior"), bool(step.get("invert")))
    if kept not in (("Isolated", False), ("Removed", True)):
        return None
    pattern = step.get("pattern")
    written = pattern.get("Regex") if isinstance(pattern, dict) and len(pattern) == 1 else None
    return WRITTEN.get(written) if isinstance(written, str) else None


def cut_long_space(text: str, pattern: str) -> Iterator[str]:
    """Cut `text` where a very long run of white space meets a word.

    tiktoken's regex engine panics when `\\s+(?!\\S)` meets half a million characters. The cut is
    where the pattern makes it anyway, before the last of them, so that the ids stay the same. Where
    a pattern takes line ends apart, only what follows the last one is such a run. SmolLM's leaves
    white space before a digit in one piece.
    """
    long_run = _LONG_BLANK if _LINES in pattern else _LONG_SPACE
    ends = [match.end() for match in long_run.finditer(text)]
    if pattern == SMOLLM_SPLIT:
        ends = [end for end in ends if unicodedata.category(text[end])[0] != "N"]
    cuts = [0, *(end - 1 for end in ends), len(text)]
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


def names_of(argument: str, given: Any) -> Any:
    """Special tokens that a caller names: "all", or a set of texts; ValueError for others."""
    if isinstance(given, str) and given == "all":
        return given
    names = [*given] if isinstance(given, Iterable) and not isinstance(given, str) else [None]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{argument} must be 'all' or a list of texts, but is {given!r:.60}.")
    return frozenset(names)


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
