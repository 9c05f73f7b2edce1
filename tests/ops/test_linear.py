"""linear: y = x W + b (article 7.3 step 1, 8.1)."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.ops.linear import linear_backward, linear_forward
from tests.ops import article


@pytest.mark.parametrize(
    ("W", "expected"),
    [(article.W_Q, article.Q), (article.W_K, article.K), (article.W_V, article.X)],
    ids=["Q", "K", "V"],
)
def test_article_step_1_projections(W: np.ndarray, expected: np.ndarray) -> None:
    y, _ = linear_forward(article.X, W, np.zeros(4))
    assert y.tolist() == expected.tolist()


def test_naive_loop(rng: np.random.Generator) -> None:
    x, W, b = (rng.standard_normal(shape) for shape in [(2, 5, 3), (3, 4), (4,)])
    dy = rng.standard_normal((2, 5, 4))
    y, saved = linear_forward(x, W, b)
    expected, dx, dW, db = np.zeros_like(dy), np.zeros_like(x), np.zeros_like(W), np.zeros_like(b)
    for n, t, j in np.ndindex(2, 5, 4):
        expected[n, t, j] = b[j] + sum(x[n, t, i] * W[i, j] for i in range(3))
        db[j] += dy[n, t, j]
        for i in range(3):
            dx[n, t, i] += dy[n, t, j] * W[i, j]
            dW[i, j] += dy[n, t, j] * x[n, t, i]
    for got, want in zip((y, *linear_backward(dy, saved)), (expected, dx, dW, db), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-14)


def test_a_square_matrix_is_not_transposed() -> None:
    """With W [in, out] the one in row 0, column 1 takes input 0 to output 1."""
    y, saved = linear_forward(
        np.array([[1.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 0.0]]), np.zeros(2)
    )
    dx, dW, _ = linear_backward(np.array([[0.0, 5.0]]), saved)
    assert y.tolist() == [[0, 1]]
    assert dx.tolist() == [[5, 0]]
    assert dW.tolist() == [[0, 5], [0, 0]]


def test_article_two_layers_without_a_nonlinearity_are_one(rng: np.random.Generator) -> None:
    x, W1, b1 = (rng.standard_normal(shape) for shape in [(5, 3), (3, 12), (12,)])
    W2, b2 = rng.standard_normal((12, 3)), rng.standard_normal(3)
    two, _ = linear_forward(linear_forward(x, W1, b1)[0], W2, b2)
    one, _ = linear_forward(x, W1 @ W2, b1 @ W2 + b2)
    np.testing.assert_allclose(two, one, rtol=0, atol=1e-13)


def test_one_vector_alone_and_none_at_all(rng: np.random.Generator) -> None:
    W, b = rng.standard_normal((3, 4)), rng.standard_normal(4)
    x = rng.standard_normal(3)
    y, saved = linear_forward(x, W, b)
    np.testing.assert_allclose(y, x @ W + b, rtol=1e-14)
    assert [g.shape for g in linear_backward(y, saved)] == [(3,), (3, 4), (4,)]

    y, saved = linear_forward(np.zeros((2, 0, 3)), W, b)
    dx, dW, db = linear_backward(y, saved)
    assert (y.shape, dx.shape) == ((2, 0, 4), (2, 0, 3))
    assert (dW == 0).all()
    assert (db == 0).all()
