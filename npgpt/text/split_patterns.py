"""How a text is cut into the pieces in which BPE merges: the patterns of known tokenizers.

They go by the name that llama.cpp gives them, or are recognised in a `tokenizer.json`. Left out:
all others; a text cut otherwise would get other ids, so they are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from npgpt.text.text_pieces import GPT2_SPLIT
from npgpt.text.vocabulary_files import expect

# SmolLM cuts out every digit first, then goes GPT-2's way in what lies between: a digit takes no
# space with it, and white space before it stays in one piece.
SMOLLM_SPLIT = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++|\p{N}| ?[^\s\p{L}\p{N}]++"
    r"|\s++(?=\p{N})|\s++$|\s+(?!\S)|\s"
)
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

NAMED = {  # tokenizer.ggml.pre
    "gpt-2": GPT2_SPLIT,
    "gpt2": GPT2_SPLIT,
    "smollm": SMOLLM_SPLIT,
    "llama-bpe": LLAMA3_SPLIT,
    "llama3": LLAMA3_SPLIT,
    "llama-v3": LLAMA3_SPLIT,
}


def named_pattern(name: str, path: Path) -> str:
    """The pattern that llama.cpp knows by this name; ValueError if npgpt does not."""
    if name not in NAMED:
        raise ValueError(
            f"{path}: tokenizer.ggml.pre is {name!r:.60}, but npgpt cuts a text as one of "
            f"{', '.join(NAMED)}."
        )
    return NAMED[name]


def split_pattern(pre_tokenizer: Any, path: Path) -> str:
    """The pattern that the `pre_tokenizer` of a tokenizer.json describes.

    Raises ValueError for any but GPT-2's, SmolLM's and Llama 3's. Where it is null, Hugging Face
    merges across words and maps no bytes, which none of them does.
    """
    pre = expect(dict, pre_tokenizer or {}, f"{path}: pre_tokenizer")
    *before, last = _steps(pre, path)
    kinds = [step.get("type") for step in before]
    uses_regex = True
    if kinds == ["Digits"] and before[0].get("individual_digits") is True:
        pattern = SMOLLM_SPLIT
    elif kinds == ["Split"] and _is_llama3(before[0]):
        pattern, uses_regex = LLAMA3_SPLIT, False
    else:
        pattern, last = GPT2_SPLIT, pre if before else last
    for name, found, wanted in (
        ("type", last.get("type"), "ByteLevel"),
        ("add_prefix_space", last.get("add_prefix_space"), False),
        ("use_regex", last.get("use_regex", True), uses_regex),
    ):
        if found != wanted:
            raise ValueError(
                f"{path}: pre_tokenizer.{name} is {found!r:.60}, but npgpt reads text as GPT-2 "
                f"does: {wanted!r}."
            )
    return pattern


def _steps(pre: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    listed = pre.get("pretokenizers")
    if pre.get("type") != "Sequence" or not isinstance(listed, list) or not listed:
        return [pre]
    where = f"{path}: pre_tokenizer.pretokenizers"
    return [expect(dict, step, f"{where}[{n}]") for n, step in enumerate(listed)]


def _is_llama3(step: dict[str, Any]) -> bool:
    pattern = step.get("pattern")
    regex = pattern.get("Regex") if isinstance(pattern, dict) else None
    isolated = step.get("behavior") == "Isolated" and not step.get("invert")
    return isolated and regex == LLAMA3_SPLIT
