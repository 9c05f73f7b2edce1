"""Text in columns of a terminal, where a Chinese character or an emoji takes two of them.

Leaves out what terminals disagree on: characters of ambiguous width count as one column, and
emoji joined into one picture as several.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

GAP = "  "


def width(text: str) -> int:
    """Columns that a text takes: wide characters 2, combining marks and the like 0, others 1."""
    return sum(map(_width_of, text))


def cut(text: str, columns: int) -> str:
    """The text if it fits, otherwise its beginning and an ellipsis, at most `columns` wide."""
    if width(text) <= columns:
        return text
    kept, used = "", 0
    for char in text:
        used += _width_of(char)
        if used > columns - 1:
            break
        kept += char
    return kept + "…"


def left(text: str, columns: int) -> str:
    """Padded with spaces behind, to at least `columns`."""
    return text + " " * (columns - width(text))


def right(text: str, columns: int) -> str:
    """Padded with spaces in front, to at least `columns`."""
    return " " * (columns - width(text)) + text


def table(rows: Sequence[Sequence[str]], align: str, gap: str = GAP) -> str:
    """Lines with columns as wide as they need to be; `align` has an l or r for each column."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    pad = [left if side == "l" else right for side in align]
    return "\n".join(
        gap.join(p(cell, w) for p, cell, w in zip(pad, row, widths, strict=True)).rstrip()
        for row in rows
    )


def wrapped(text: str, columns: int) -> str:
    """The text in lines of at most so many columns, cut at spaces."""
    return "\n".join(" ".join(line) for line in filled(text.split(), columns, gap=1))


def filled(words: Sequence[str], columns: int, gap: int = 2) -> list[list[str]]:
    """Words in lines of at most so many columns, `gap` between two."""
    lines: list[list[str]] = [[]]
    used = -gap
    for word in words:
        used += gap + width(word)
        if used > columns and lines[-1]:
            lines.append([])
            used = width(word)
        lines[-1].append(word)
    return lines


def _width_of(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
