"""scores: queries times keys, and their scale (article 7.3 steps 2 and 3, 7.4)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npgpt.ops.scores import scale_backward, scale_forward, scores_backward, scores_forward
from tests.ops import article


def test_article_step_2_scores() -> None:
    assert scores_forward(article.Q, article.K)[0].tolist() == article.S.tolist()


def test_article_step_3_scale() -> None:
    assert scale_forward(article.S, divisor=math.sqrt(4))[0].tolist() == article.SCALED.tolist()


@pytest.mark.parametrize("d", [4, 64, 128, 1024])
def test_article_dividing_by_sqrt_d_brings_the_spread_to_1(
    d: int, rng: np.random.Generator
) -> None:
    """The article measured 1.99, 8.01, 11.33, 32.01: √d."""
    q, k = rng.standard_normal((2, 4000, 1, d))
    scores, _ = scores_forward(q, k)
    scaled, _ = scale_forward(scores, divisor=math.sqrt(d))
    assert scores.std() == pytest.approx(math.sqrt(d), rel=0.04)
    assert scaled.std() == pytest.approx(1, rel=0.04)


def test_naive_loop(rng: np.random.Generator) -> None:
    q, k, dscores = (rng.standard_normal(shape) for shape in [(2, 5, 4), (2, 7, 4), (2, 5, 7)])
    scores, saved = scores_forward(q, k)
    dq, dk = scores_backward(dscores, saved)
    want, want_dq, want_dk = np.zeros_like(scores), np.zeros_like(q), np.zeros_like(k)
    for h, i, j, n in np.ndindex(2, 5, 7, 4):
        want[h, i, j] += q[h, i, n] * k[h, j, n]
        want_dq[h, i, n] += dscores[h, i, j] * k[h, j, n]
        want_dk[h, j, n] += dscores[h, i, j] * q[h, i, n]
    for got, expected in ((scores, want), (dq, want_dq), (dk, want_dk)):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-14)


def test_scale_naive_loop() -> None:
    y, saved = scale_forward(np.array([[1.0, -2.0, 6.0]]), divisor=4.0)
    assert y.tolist() == [[0.25, -0.5, 1.5]]
    assert scale_backward(np.array([[8.0, 0.0, -2.0]]), saved).tolist() == [[2, 0, -0.5]]
