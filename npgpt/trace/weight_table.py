"""A head's weight table as text: row i says how much token i looks at each token (article 7.3).

A table too wide for the terminal is shown in part: the rows that end at one position, the columns
with most of their weight, and what is left in a last column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npgpt.cli import cut, left, right, width

ROWS = 16  # of a table that is shown in part
LABEL = 12  # columns for a row's token
CELL = 5  # columns for a weight, and at most 9 where there is room for longer tokens


def weight_table(probs: np.ndarray, labels: Sequence[str], position: int, columns: int) -> str:
    """The table [T, T], whole or in part, the row of `position` marked.

    Args:
        probs: [T, T]; rows sum to 1.
        labels: what the T tokens look like.
        columns: of the terminal.
    """
    T = len(labels)
    digits, longest = len(str(T - 1)), min(LABEL, max(map(width, labels)))
    room = columns - (digits + longest + 3)  # mark, position, space, label, space
    if room >= T * CELL:
        rows, keys, cell = list(range(T)), list(range(T)), min(room // T, max(CELL, longest + 1), 9)
    else:
        rows, cell = list(range(max(0, position - ROWS + 1), position + 1)), 7
        keys = _most_looked_at(probs[rows], room // cell - 1)
    heads = [[str(j) for j in keys], [cut(labels[j], cell - 1) for j in keys]]
    shown = [_cells(probs[i], i, keys) for i in rows]
    if len(keys) < T:
        heads = [[*heads[0], ""], [*heads[1], "rest"]]
        for i, cells in zip(rows, shown, strict=True):
            cells.append(_weight(float(np.delete(probs[i], keys).sum())))
    names = [
        f"{'>' * (i == position)}{i}".rjust(digits + 1)
        + f" {left(cut(labels[i], longest), longest)}"
        for i in rows
    ]
    lines = zip([" " * (columns - room - 1)] * 2 + names, heads + shown, strict=True)
    return "\n".join(
        (name + "".join(right(text, cell) for text in cells)).rstrip() for name, cells in lines
    )


def _most_looked_at(rows: np.ndarray, n: int) -> list[int]:
    """The n keys with most weight in these rows, in the order of the text."""
    return sorted(int(j) for j in np.argsort(-rows.sum(axis=0), kind="stable")[:n])


def _cells(row: np.ndarray, i: int, keys: Sequence[int]) -> list[str]:
    return [_weight(float(row[j])) if j <= i else "" for j in keys]


def _weight(weight: float) -> str:
    return "." if weight < 0.005 else f"{weight:.2f}"
