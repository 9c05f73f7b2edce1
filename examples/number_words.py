"""A made-up language pair: numbers below a million in English words and in Chinese characters.

    345678   three hundred forty five thousand six hundred seventy eight   三十四万五千六百七十八

Not word for word: English counts in thousands, Chinese in 万 (ten thousands), and 零 stands for
decimal places left out between others.
"""

from __future__ import annotations

import numpy as np

LIMIT = 1_000_000
DIGIT_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
STEMS = ["thir", "four", "fif", "six", "seven", "eigh", "nine"]
SMALL = [*DIGIT_WORDS, "ten", "eleven", "twelve", *(stem + "teen" for stem in STEMS)]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
DIGITS, UNITS = "零一二三四五六七八九", "千百十"

PAD, START, END = 0, 1, 2
WORDS = [*SMALL, *TENS, "hundred", "thousand", "and", *DIGITS, *UNITS, "万"]
IDS = {word: i for i, word in enumerate(WORDS, start=3)}
VOCABULARY = ["<pad>", "<start>", "<end>", *WORDS]


def english(n: int, *, with_and: bool = False) -> list[str]:
    """The words of n, below a million; British English says `and` before the last two digits."""
    if n >= 1000:
        rest = english(n % 1000, with_and=with_and) if n % 1000 else []
        glue = ["and"] if with_and and 0 < n % 1000 < 100 else []
        return [*english(n // 1000, with_and=with_and), "thousand", *glue, *rest]
    if n >= 100:
        rest = english(n % 100) if n % 100 else []
        return [SMALL[n // 100], "hundred", *(["and"] if with_and and rest else []), *rest]
    if n < 20:
        return [SMALL[n]]
    return [TENS[n // 10 - 2], *([SMALL[n % 10]] if n % 10 else [])]


def chinese(n: int) -> str:
    """The characters of n, below a million."""
    if n == 0:
        return DIGITS[0]
    text = four_digits(n // 10_000) + "万" if n >= 10_000 else ""
    rest = n % 10_000
    text += (DIGITS[0] if text and 0 < rest < 1000 else "") + four_digits(rest)
    return text.removeprefix("一") if text.startswith("一十") else text


def four_digits(n: int) -> str:
    """1..9999, or nothing for 0; one 零 for any zeros between other digits."""
    text, skipped = "", False
    for digit, unit in zip(f"{n:04}", [*UNITS, ""], strict=True):
        if digit == "0":
            skipped = bool(text)
        else:
            text += (DIGITS[0] if skipped else "") + DIGITS[int(digit)] + unit
            skipped = False
    return text


def held_out(n: np.ndarray) -> np.ndarray:
    """Whether a number is kept from training: one in ten, scattered by a hash."""
    return n * 2_654_435_761 % 2**32 < 2**32 // 10


def draw(rng: np.random.Generator, count: int, *, unseen: bool) -> np.ndarray:
    """Numbers of one to six digits, each length as often, from training's or from the others."""
    numbers = (10 ** rng.uniform(0, 6, 20 * count)).astype(np.int64)
    return numbers[held_out(numbers) == unseen][:count]


def padded(texts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Ids [B, T] with PAD behind the shorter ones, and where they are real."""
    lengths = np.array([len(text) for text in texts])
    real = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(real.shape, PAD)
    ids[real] = np.concatenate(texts)
    return ids, real


def source_ids(n: int, *, with_and: bool) -> list[int]:
    """The words of n and an end."""
    return [*(IDS[word] for word in english(n, with_and=with_and)), END]


def target_ids(n: int) -> list[int]:
    """The characters of n and an end."""
    return [*(IDS[char] for char in chinese(n)), END]
