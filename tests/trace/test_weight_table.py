"""A weight table as text: whole where it fits, otherwise what matters for one position."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.cli import width
from npgpt.trace.weight_table import ROWS, weight_table

ARTICLE = np.array([[1, 0, 0], [0.12, 0.88, 0], [0.27, 0.27, 0.45]])  # article 7.3 step 5


def random_table(rng, T: int) -> np.ndarray:
    table = np.tril(rng.random((T, T)) ** 4)
    return table / table.sum(axis=1, keepdims=True)


def test_the_articles_table():
    assert weight_table(ARTICLE, ["猫", "追", "狗"], 2, 100).splitlines() == [
        "         0    1    2",
        "        猫   追   狗",
        " 0 猫 1.00",
        " 1 追 0.12 0.88",
        ">2 狗 0.27 0.27 0.45",
    ]


def test_weights_too_small_to_print_are_dots_and_the_future_is_blank():
    table = np.array([[1, 0, 0], [0.004, 0.996, 0], [0.006, 0, 0.994]])
    rows = weight_table(table, ["a", "b", "c"], 0, 100).splitlines()[2:]
    assert [row.split()[2:] for row in rows] == [["1.00"], [".", "1.00"], ["0.01", ".", "0.99"]]


def test_a_wide_table_is_cut_to_the_rows_before_a_position_and_their_columns():
    T, position = 60, 50
    table = np.zeros((T, T))
    table[:, 7] = 1
    table[40, [7, 33]] = 0.5, 0.5
    table[position, [3, 7, 33]] = 0.05, 0.2, 0.75
    lines = weight_table(table, [f"t{i}" for i in range(T)], position, 100).splitlines()
    numbers = [int(n) for n in lines[0].split()]
    assert numbers == sorted(numbers)
    assert {3, 7, 33} <= set(numbers)
    assert lines[1].split() == [*(f"t{i}" for i in numbers), "rest"]
    assert [line.lstrip("> ").split()[0] for line in lines[2:]] == [
        str(i) for i in range(position - ROWS + 1, position + 1)
    ]
    cells = dict(zip(numbers, lines[-1].split()[2:], strict=False))
    assert (cells[3], cells[7], cells[33], lines[-1][0]) == ("0.05", "0.20", "0.75", ">")


def test_weight_that_finds_no_column_is_in_the_rest():
    T, position = 60, 50
    table = np.zeros((T, T))
    for i in range(35, position):  # one other token for each row: 15 columns for about a dozen
        table[i, i - 30] = 1
    table[position, 40] = 0.25
    table[position, 5:20] = 0.05
    lines = weight_table(table, ["x"] * T, position, 100).splitlines()
    shown = len(set(map(int, lines[0].split())) & set(range(5, 20)))
    assert 0 < shown < 15
    rest = 0.25 + 0.05 * (15 - shown)
    assert float(lines[-1].split()[-1]) == pytest.approx(rest, abs=0.005)


def test_rows_with_their_rest_sum_to_one(rng):
    lines = weight_table(random_table(rng, 200), ["x"] * 200, 120, 100).splitlines()
    for line in lines[2:]:
        cells = [0 if cell == "." else float(cell) for cell in line.removeprefix(">").split()[2:]]
        assert sum(cells) == pytest.approx(1, abs=0.005 * len(cells))


@pytest.mark.parametrize("label", ["a", "␣because", "<F0 9F 98>", "猫追狗猫追狗猫追狗", "😁"])
@pytest.mark.parametrize("T", [1, 2, 9, 10, 16, 17, 18, 19, 40, 101, 1024])
@pytest.mark.parametrize("columns", [80, 100])
def test_every_table_fits_its_columns_and_has_its_position(rng, label, T, columns):
    position = T // 2
    lines = weight_table(random_table(rng, T), [label] * T, position, columns).splitlines()
    assert max(map(width, lines)) <= columns
    assert [line.split()[0] for line in lines if line.lstrip().startswith(">")] == [f">{position}"]
