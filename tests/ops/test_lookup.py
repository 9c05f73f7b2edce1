"""lookup: the rows of a table (article chapter 5)."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.ops.lookup import lookup_backward, lookup_forward

CAT_SAT = np.array([464, 3797, 3332, 319, 262])  # "The cat sat on the"


def test_article_id_464_takes_row_464() -> None:
    table = np.arange(50257.0)[:, None] * [1.0, -1.0]
    y, _ = lookup_forward(CAT_SAT, table)
    assert y.tolist() == [[464, -464], [3797, -3797], [3332, -3332], [319, -319], [262, -262]]


def test_article_lookup_equals_one_hot_times_table(rng: np.random.Generator) -> None:
    ids, table = rng.integers(0, 11, (2, 5)), rng.standard_normal((11, 3))
    one_hot = np.zeros((2, 5, 11))
    for where in np.ndindex(ids.shape):
        one_hot[where][ids[where]] = 1
    y, saved = lookup_forward(ids, table)
    dy = rng.standard_normal(y.shape)
    np.testing.assert_array_equal(y, one_hot @ table)
    by_product = one_hot.reshape(-1, 11).T @ dy.reshape(-1, 3)
    np.testing.assert_allclose(lookup_backward(dy, saved), by_product, rtol=0, atol=1e-15)


def test_only_used_rows_get_a_gradient_and_repeats_add_up() -> None:
    _, saved = lookup_forward(np.array([[3, 1, 3], [3, 0, 1]]), np.zeros((5, 2)))
    dy = np.array([[[1, 10], [2, 20], [4, 40]], [[8, 80], [16, 160], [32, 320]]], float)
    dtable = lookup_backward(dy, saved)
    assert dtable.tolist() == [[16, 160], [34, 340], [0, 0], [13, 130], [0, 0]]


def test_rows_are_copies_not_views() -> None:
    table = np.ones((4, 2))
    lookup_forward(np.array([1]), table)[0][...] = 7
    assert (table == 1).all()


def test_no_ids_give_no_rows_and_no_gradient() -> None:
    y, saved = lookup_forward(np.zeros((2, 0), int), np.ones((4, 3)))
    assert y.shape == (2, 0, 3)
    assert lookup_backward(y, saved).tolist() == np.zeros((4, 3)).tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.int64])
def test_every_integer_dtype_is_an_id(dtype: type[np.integer]) -> None:
    y, saved = lookup_forward(np.array([2, 0], dtype), np.array([[5.0], [6.0], [7.0]]))
    assert y.tolist() == [[7], [5]]
    assert lookup_backward(y, saved).tolist() == [[5], [0], [7]]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (
            [[0, 1], [2, -1]],
            r"^token id -1 at index \[1, 1\] has no row: the table holds 0\.\.3\.$",
        ),
        ([0, 9, 4, -2], r"^token id 9 at index \[1\] has no row: the table holds 0\.\.3\.$"),
        (4, r"^token id 4 at index \[\] has no row: the table holds 0\.\.3\.$"),
        ([1.0, 2.0], r"^token ids must be integers, but have dtype float64\.$"),
        ([True, False], r"^token ids must be integers, but have dtype bool\.$"),
    ],
)
def test_ids_without_a_row_are_refused(ids: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lookup_forward(np.array(ids), np.ones((4, 3)))
