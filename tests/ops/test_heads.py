"""heads: cutting a projection into heads (article 7.6)."""

from __future__ import annotations

import numpy as np

from npgpt.ops.heads import (
    merge_heads_backward,
    merge_heads_forward,
    split_heads_backward,
    split_heads_forward,
)
from npgpt.ops.linear import linear_forward


def test_article_cutting_the_columns_of_W_Q_equals_12_projections(rng: np.random.Generator) -> None:
    """GPT-2 small's sizes: every head reads the whole 768-wide input through its own 768 x 64."""
    x, W, b = (
        rng.standard_normal((5, 768)),
        rng.standard_normal((768, 768)),
        rng.standard_normal(768),
    )
    heads, _ = split_heads_forward(linear_forward(x, W, b)[0], n_head=12)
    assert heads.shape == (12, 5, 64)
    for h in range(12):
        own = slice(64 * h, 64 * (h + 1))
        one_head, _ = linear_forward(x, np.ascontiguousarray(W[:, own]), b[own])
        np.testing.assert_allclose(heads[h], one_head, rtol=0, atol=1e-12)


def test_naive_loop() -> None:
    x = np.arange(2.0 * 5 * 12).reshape(2, 5, 12)  # [B, T, d]
    y, saved = split_heads_forward(x, n_head=3)
    merged, n_head = merge_heads_forward(y)
    assert y.shape == (2, 3, 5, 4)
    for n, h, t, i in np.ndindex(2, 3, 5, 4):
        assert y[n, h, t, i] == x[n, t, 4 * h + i]
    np.testing.assert_array_equal(merged, x)
    np.testing.assert_array_equal(split_heads_backward(y, saved), x)
    np.testing.assert_array_equal(merge_heads_backward(x, n_head), y)


def test_one_head_one_token() -> None:
    x = np.arange(4.0).reshape(1, 4)
    y, _ = split_heads_forward(x, n_head=1)
    assert y.tolist() == [[[0, 1, 2, 3]]]
    assert merge_heads_forward(y)[0].tolist() == x.tolist()


def test_splitting_copies_nothing() -> None:
    x = np.zeros((5, 12))
    assert np.shares_memory(split_heads_forward(x, n_head=3)[0], x)
