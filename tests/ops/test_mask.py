"""mask: who may look at whom (article 7.3 step 4, 7.5)."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.ops.mask import (
    attention_mask_for,
    causal_mask,
    mask_backward,
    mask_forward,
    padding_mask,
)
from tests.ops import article


def test_article_step_4_the_upper_right_corner_is_closed() -> None:
    y, _ = mask_forward(article.SCALED, causal_mask(3, 3))
    assert y.tolist() == article.MASKED.tolist()


@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 7), (4, 7), (5, 5), (5, 3), (3, 0), (0, 3)])
def test_causal_counts_from_the_bottom_right_corner(T: int, S: int) -> None:
    mask = causal_mask(T, S)
    assert mask.dtype == bool
    assert mask.shape == (T, S)
    for i, j in np.ndindex(T, S):
        position_of_query = S - T + i
        assert mask[i, j] == (j <= position_of_query)


def test_causal_by_hand() -> None:
    assert causal_mask(1, 4).astype(int).tolist() == [[1, 1, 1, 1]]  # decoding sees the whole cache
    assert causal_mask(2, 4).astype(int).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert causal_mask(3, 2).astype(int).tolist() == [[0, 0], [1, 0], [1, 1]]


def test_the_last_queries_see_what_they_saw_in_the_full_table() -> None:
    np.testing.assert_array_equal(causal_mask(3, 8), causal_mask(8, 8)[-3:])


@pytest.mark.parametrize("dtype", [np.int64, np.float32, bool])
def test_padding_is_hidden_from_every_head_and_query(dtype: type[np.generic]) -> None:
    mask = padding_mask(np.array([[0, 0, 1], [1, 1, 1]], dtype))
    assert mask.shape == (2, 1, 1, 3)
    assert mask.dtype == bool
    assert mask[:, 0, 0].tolist() == [[False, False, True], [True, True, True]]
    assert padding_mask(np.array([0, 2, -1])).tolist() == [[[False, True, True]]]  # not 0 is real


def test_causal_and_padding_together() -> None:
    np.testing.assert_array_equal(attention_mask_for(2, 4), causal_mask(2, 4))
    real = np.array([[0, 1, 1, 1], [1, 1, 0, 1], [0, 0, 0, 0]])
    mask = attention_mask_for(2, 4, real)
    assert mask.shape == (3, 1, 2, 4)
    for b, i, j in np.ndindex(3, 2, 4):
        assert mask[b, 0, i, j] == (j <= 2 + i and bool(real[b, j]))


def test_naive_loop_with_a_mask_for_all_heads(rng: np.random.Generator) -> None:
    scores, dy = rng.standard_normal((2, 2, 3, 5, 7))  # each [B, H, T, S]
    mask = attention_mask_for(5, 7, np.array([[0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 0]]))
    y, saved = mask_forward(scores, mask)
    dscores = mask_backward(dy, saved)
    for b, h, i, j in np.ndindex(scores.shape):
        allowed = mask[b, 0, i, j]
        assert y[b, h, i, j] == (scores[b, h, i, j] if allowed else -np.inf)
        assert dscores[b, h, i, j] == (dy[b, h, i, j] if allowed else 0)


def test_what_is_hidden_cannot_spoil_anything() -> None:
    bad = np.array([[1.0, np.nan, np.inf]])
    y, saved = mask_forward(bad, np.array([[True, False, False]]))
    assert y.tolist() == [[1, -np.inf, -np.inf]]
    assert mask_backward(bad, saved).tolist() == [[1, 0, 0]]


@pytest.mark.parametrize("window", [1, 2, 4, 9])
def test_a_window_hides_what_is_further_back(window) -> None:
    mask = causal_mask(3, 5, window)
    want = [[i + 2 - window < j <= i + 2 for j in range(5)] for i in range(3)]
    np.testing.assert_array_equal(mask, want)
    assert mask.strides == causal_mask(3, 5).strides  # cut from one row
    real = np.array([0, 1, 1, 1, 1])
    np.testing.assert_array_equal(attention_mask_for(3, 5, real, window)[0], mask & (real == 1))
