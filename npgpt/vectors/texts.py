"""Byte pairs: texts and their ids in a tiny vocabulary of GPT-2's kind."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npgpt.text.learning import files_of, ids_of, tokenizer_of
from npgpt.text.split_patterns import GPT2_SPLIT
from npgpt.vectors.cases import Case, Computed, Float, as_array

MERGES = (
    "a t", "a a", "h e", "Ġ c", "Ġ s", "Ġ t", "0 1", "2 01", "T he", "å ŀ", "ç Į", "Ġ aa",
    "Ġc at", "Ġs at", "Ġt he", "Ġaa aa", "Ã ©", "' s", "' m", "çĮ «", "åŀ «", "Ċ Ċ", "Ġ Ġ", "ĠĠ Ġ",
    # Within a piece: f and é, 7 and ². Never within one, as long as the pattern knows all letters,
    # marks, numbers and white space: ' and M, 上 and ，, e and its accent, U+3000 and U+200B.
    "f Ã©", "7 Â", "' M", "Ĭ ï", "e Ì", "Ģ â",
)  # fmt: skip
TEXTS = (
    "",
    "The cat sat on the mat.",
    " the  cat   sat    ",
    "aaaaaaa aaaaa aa a",
    "I'm sure it's the cat's, I'M SURE",
    "2017 02017 20172017 2017²",
    "\n\ndef f(x):\n\n\n    return x\r\n\t",
    "猫坐在垫子上，猫的垫子。",
    "café né cafe\u0301 naïve",
    "🙂🤖 👩‍💻",
    "\u00a0\u3000\u200b\ufeff",
    "<|endoftext|>",
)
FORMULA = f"""pieces: {GPT2_SPLIT} (++: without going back)
each piece is bytes, id = byte; the pair that stands first in `merges` is joined, again and again
merges[n] = (left, right) makes id 256 + n; <|endoftext|> has the last id, and in a text is text"""


def text_cases() -> Iterator[Case]:
    """One case, of all texts."""
    yield Case("text/byte_pairs.tiny", FORMULA, "", _computed)


def vocabulary_files() -> dict[str, str]:
    """The vocabulary as GPT-2's files have it."""
    return files_of(_merges())


def _merges() -> list[tuple[str, str]]:
    return [(left, right) for left, _, right in (merge.partition(" ") for merge in MERGES)]


def _computed(dtype: Float) -> Computed:  # noqa: ARG001  (no floats here)
    merges = _merges()
    ids, tokenizer = ids_of(merges), tokenizer_of(merges)
    inputs = {"merges": np.array([[ids[left], ids[right]] for left, right in merges])}
    outputs = {}
    for n, text in enumerate(TEXTS):
        inputs[f"text.{n}"] = as_array(text)
        outputs[f"ids.{n}"] = np.array(tokenizer.encode(text), np.int64)
    return Computed(inputs, {}, outputs, {}, {})
