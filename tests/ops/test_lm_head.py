"""lm_head: a score for every token of the vocabulary (article chapter 10)."""

from __future__ import annotations

from typing import Any

import numpy as np

from npgpt.ops.lm_head import lm_head_backward, lm_head_forward
from npgpt.ops.lookup import lookup_backward, lookup_forward
from tests.gradcheck import check_gradients


def test_by_hand() -> None:
    table = np.array([[1, 0], [0, 1], [2, -1]], float)
    logits, saved = lm_head_forward(np.array([[3, 4], [1, 1]], float), table)
    dx, dtable = lm_head_backward(np.array([[1, 0, 0], [0, 10, 100]], float), saved)
    assert logits.tolist() == [[3, 4, 2], [1, 1, 1]]
    assert dx.tolist() == [[1, 0], [200, -90]]
    assert dtable.tolist() == [[3, 4], [10, 10], [100, 100]]


def test_naive_loop(rng: np.random.Generator) -> None:
    x, table, dlogits = (rng.standard_normal(s) for s in [(2, 5, 3), (11, 3), (2, 5, 11)])
    logits, saved = lm_head_forward(x, table)
    dx, dtable = lm_head_backward(dlogits, saved)
    want, want_dx, want_dtable = np.zeros_like(logits), np.zeros_like(x), np.zeros_like(table)
    for b, t, v, i in np.ndindex(2, 5, 11, 3):
        want[b, t, v] += x[b, t, i] * table[v, i]
        want_dx[b, t, i] += dlogits[b, t, v] * table[v, i]
        want_dtable[v, i] += dlogits[b, t, v] * x[b, t, i]
    for got, expected in ((logits, want), (dx, want_dx), (dtable, want_dtable)):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-14)


def test_article_a_tied_table_gets_two_gradients(rng: np.random.Generator) -> None:
    """Looked up at the bottom and multiplied at the top, the gradient of the table is the sum."""
    ids = np.array([[3, 0, 3], [2, 3, 4]])

    def forward(table: np.ndarray) -> tuple[np.ndarray, Any]:
        x, saved_lookup = lookup_forward(ids, table)
        logits, saved_head = lm_head_forward(x * x, table)
        return logits, (x, saved_lookup, saved_head)

    def backward(dlogits: np.ndarray, saved: Any) -> np.ndarray:
        x, saved_lookup, saved_head = saved
        dsquare, dtable_head = lm_head_backward(dlogits, saved_head)
        return dtable_head + lookup_backward(2 * x * dsquare, saved_lookup)

    check_gradients(forward, backward, (rng.standard_normal((7, 4)),), rng)


def test_one_vector_alone(rng: np.random.Generator) -> None:
    """Generation scores the last position only."""
    x, table = rng.standard_normal((2, 5, 3)), rng.standard_normal((11, 3))
    whole, _ = lm_head_forward(x, table)
    last, saved = lm_head_forward(x[1, -1], table)
    assert last.shape == (11,)
    np.testing.assert_allclose(last, whole[1, -1], rtol=0, atol=1e-15)
    assert [g.shape for g in lm_head_backward(last, saved)] == [(3,), (11, 3)]
