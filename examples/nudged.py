"""Gradients printed side by side, each one checked twice before it is shown.

A formula, written out in plain NumPy, is held against npgpt's backward function, and that against
central differences: nudge each number up and down, and look how far the loss L moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from show import rows_of_numbers, say

from npgpt.cli import left, width

STEP = 1e-5
LEGEND = say(
    "L is the number that should become smaller, dA is ∂L/∂A; where a dy is given, L = Σ dy y.\n"
    "± is the largest distance of dA from central differences: nudge each number of A up and\n"
    "down, look at L.",
    "L 是要变小的那个数，dA 就是 ∂L/∂A；给了 dy 的地方，L = Σ dy y。\n"
    "± 是 dA 与中心差分的最大距离：把 A 的每个数各往上、往下推一点，看 L 变多少。",
)


class Column(NamedTuple):
    """A matrix to print: its name or formula, its numbers, and what stands under it."""

    title: str
    matrix: np.ndarray
    foot: str = ""


def nudged(
    title: str, gradient: np.ndarray, loss: Callable[[np.ndarray], float], at: np.ndarray
) -> Column:
    """A gradient of `loss` at `at`; AssertionError unless central differences confirm it."""
    differences = np.zeros_like(at)
    for where in np.ndindex(at.shape):
        nudge = np.zeros_like(at)
        nudge[where] = STEP
        differences[where] = (loss(at + nudge) - loss(at - nudge)) / (2 * STEP)
    error = np.abs(gradient - differences).max()
    if not error < 1e-8:
        raise AssertionError(f"{title}: {error:.1e} away from central differences")
    return Column(title, np.atleast_2d(gradient), f"± {error:.0e}")


def there_and_back(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    inputs: tuple[np.ndarray, ...],
    dy: np.ndarray | float,
    *formulas: tuple[str, np.ndarray],
    **settings: Any,
) -> tuple[np.ndarray, list[Column]]:
    """One of npgpt's operations forward and backward: y, and a checked column for each gradient.

    Args:
        forward, backward: forward(*inputs, **settings) -> y, saved; backward(dy, saved).
        inputs: integers, which have no gradient, among them.
        dy: what arrives.
        formulas: title and value of each gradient in plain NumPy, in the order of the inputs.
    """
    y, saved = forward(*inputs, **settings)
    gradients = backward(dy, saved)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    places = [i for i, array in enumerate(inputs) if array.dtype.kind == "f"]
    columns = []
    for i, gradient, (title, formula) in zip(places, gradients, formulas, strict=True):
        if not np.allclose(formula, gradient, rtol=1e-12, atol=1e-14):
            raise AssertionError(f"{title}: npgpt has {gradient}, the formula {formula}")

        def loss(array: np.ndarray, i: int = i) -> float:
            return float(np.sum(dy * forward(*inputs[:i], array, *inputs[i + 1 :], **settings)[0]))

        columns.append(nudged(title, gradient, loss, inputs[i]))
    return y, columns


def side_by_side(*columns: Column, rows: list[str] | None = None, digits: int = 2) -> None:
    """Print the columns beside each other, each under its title; `rows` are labels."""
    height = max(len(column.matrix) for column in columns)
    labels = ["  " + label for label in ["", *(rows or [""] * height)]]
    blocks = [labels] if rows else [[""]]
    for title, matrix, foot in columns:
        matrix = np.round(matrix, 12)  # 0 is 0, not -1e-16
        blocks.append([title, *rows_of_numbers(matrix, digits), foot])
    lines = []
    for block in blocks:
        block += [""] * (height + 2 - len(block))
        lines.append([left(line, max(map(width, block))) for line in block])
    printed = ["    ".join(parts).rstrip() for parts in zip(*lines, strict=True)]
    print("\n".join(printed if printed[-1] else printed[:-1]))
