"""project: multiply by a matrix, nothing added (article 7.3 step 1)."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.ops.project import project_backward, project_forward
from tests.ops import article


def test_article_the_queries_of_the_toy_model() -> None:
    q, _ = project_forward(article.X, article.W_Q)
    assert q.tolist() == article.Q.tolist()


def test_naive_loop(rng: np.random.Generator) -> None:
    x, W, dy = rng.standard_normal((2, 3, 4)), rng.standard_normal((4, 5)), rng.random((2, 3, 5))
    y, saved = project_forward(x, W)
    dx, dW = project_backward(dy, saved)
    for b, t in np.ndindex(2, 3):
        for j in range(5):
            assert y[b, t, j] == pytest.approx(sum(x[b, t, i] * W[i, j] for i in range(4)))
        for i in range(4):
            assert dx[b, t, i] == pytest.approx(sum(dy[b, t, j] * W[i, j] for j in range(5)))
    for i, j in np.ndindex(4, 5):
        want = sum(x[b, t, i] * dy[b, t, j] for b, t in np.ndindex(2, 3))
        assert dW[i, j] == pytest.approx(want)
