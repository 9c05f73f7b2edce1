"""Text for a small BERT: a token is a whole word or a sign, a row a paragraph or a piece of one."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNK, CLS, SEP, MASK = range(len(SPECIAL))
ANIMALS = [
    ("cat", "mat", "meow"),
    ("dog", "porch", "woof"),
    ("cow", "meadow", "moo"),
    ("duck", "pond", "quack"),
]
FORMS = [
    "the {0} on the {1} says {2} .",
    "on the {1} there sits a {0} .",
    "who says {2} ? it is the {0} , who lives on the {1} .",
]
ABOUT_ANIMALS = {
    "the [MASK] on the mat says meow .": ["cat"],
    "the cow on the [MASK] says moo .": ["meadow"],
    "who says [MASK] ? it is the dog , who lives on the [MASK] .": ["woof", "porch"],
}
ABOUT_STORIES = [
    "once upon a [MASK] there was a king",
    "“ i will give you my [MASK] , ” he said",
    "she [MASK] to the door and looked out .",
]


def made_up() -> str:
    """5000 sentences in which a word follows from others, before or behind; a paragraph each."""
    draws = np.random.default_rng(0).integers(0, (len(ANIMALS), len(FORMS)), (5000, 2))
    return "\n\n".join(FORMS[form].format(*ANIMALS[animal]) for animal, form in draws)


def tokens_of(text: str) -> list[str]:
    """Words and signs in lower case, cut where BERT cuts before it looks for pieces of words."""
    return re.findall(r"\[mask\]|[^\W_]+|[^\w\s]|_", text.lower())


def vocabulary_of(text: str, size: int) -> dict[str, int]:
    """The special tokens, then the most frequent ones: token -> id."""
    counted = Counter(tokens_of(text)).most_common(size - len(SPECIAL))
    return {token: n for n, token in enumerate([*SPECIAL, *(token for token, _ in counted)])}


def ids_of(text: str, vocabulary: dict[str, int]) -> list[int]:
    """A word that is not in the vocabulary is [UNK]."""
    known = {**vocabulary, "[mask]": MASK}
    return [known.get(token, UNK) for token in tokens_of(text)]


def rows_of(text: str, vocabulary: dict[str, int], length: int) -> np.ndarray:
    """All paragraphs, cut into pieces, with [CLS] and [SEP] around each: [N, length], padded."""
    room = length - 2
    rows = []
    for paragraph in re.split(r"\r?\n\s*\n", text):
        ids = ids_of(paragraph, vocabulary)
        for start in range(0, len(ids), room):
            piece = ids[start : start + room]
            rows.append([CLS, *piece, SEP, *[PAD] * (room - len(piece))])
    return np.array(rows)
