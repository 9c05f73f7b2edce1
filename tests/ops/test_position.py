"""position: the learned table of positions (article chapter 6)."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.ops.position import position_backward, position_forward

CAT, CHASES, DOG = [2.0, 0.0], [0.0, 2.0], [2.0, 1.0]  # 猫 追 狗
TABLE = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], float)


@pytest.mark.parametrize(
    ("words", "positions", "expected"),
    [
        ([CAT, CHASES, DOG], [0, 1, 2], [[3, 0], [0, 3], [1, 1]]),
        ([DOG, CHASES, CAT], [0, 1, 2], [[3, 1], [0, 3], [1, 0]]),
        ([CAT, CHASES, DOG], [1, 2, 3], [[2, 1], [-1, 2], [2, 0]]),
    ],
    ids=["猫追狗", "狗追猫", "猫追狗, one later"],
)
def test_article_the_order_of_words_shows(
    words: list[list[float]], positions: list[int], expected: list[list[float]]
) -> None:
    y, _ = position_forward(np.array(words), np.array(positions), TABLE)
    assert y.tolist() == expected


def test_naive_loop_with_repeated_positions(rng: np.random.Generator) -> None:
    """Left padding: the padded places and the first token share position 0."""
    x, table = rng.standard_normal((2, 4, 3)), rng.standard_normal((6, 3))
    positions = np.array([[0, 0, 0, 1], [0, 1, 2, 5]])
    dy = rng.standard_normal(x.shape)
    y, saved = position_forward(x, positions, table)
    dx, dtable = position_backward(dy, saved)
    expected = np.zeros_like(table)
    for b, t in np.ndindex(2, 4):
        np.testing.assert_array_equal(y[b, t], x[b, t] + table[positions[b, t]])
        expected[positions[b, t]] += dy[b, t]
    np.testing.assert_array_equal(dx, dy)
    np.testing.assert_allclose(dtable, expected, rtol=1e-14)


def test_one_row_of_positions_serves_the_whole_batch() -> None:
    y, saved = position_forward(np.zeros((5, 2, 3, 2)), np.array([1, 0, 1]), TABLE)
    _, dtable = position_backward(np.ones(y.shape), saved)
    assert (y == TABLE[[1, 0, 1]]).all()
    assert dtable.tolist() == [[10, 10], [20, 20], [0, 0], [0, 0]]


def test_no_tokens() -> None:
    y, saved = position_forward(np.zeros((0, 2)), np.zeros(0, int), TABLE)
    dx, dtable = position_backward(y, saved)
    assert (y.shape, dx.shape) == ((0, 2), (0, 2))
    assert (dtable == 0).all()


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([0, 1, 4], r"^position 4 at index \[2\] has no row: the table holds 0\.\.3\.$"),
        ([0, -1, 1], r"^position -1 at index \[1\] has no row: the table holds 0\.\.3\.$"),
        ([0.0, 1.0, 2.0], r"^positions must be integers, but have dtype float64\.$"),
    ],
)
def test_article_a_position_beyond_the_table_does_not_exist(
    positions: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        position_forward(np.zeros((3, 2)), np.array(positions), TABLE)
