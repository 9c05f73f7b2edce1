"""The six steps one after the other, as the article works them by hand (6.1, 7.3)."""

from __future__ import annotations

import math

import numpy as np

from npgpt.ops.linear import linear_forward
from npgpt.ops.mask import causal_mask, mask_forward
from npgpt.ops.scores import scale_forward, scores_forward
from npgpt.ops.softmax import softmax_forward
from npgpt.ops.weighted_sum import weighted_sum_forward
from tests.ops import article


def six_steps(x: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The article's toy model: weights [T, T] and output [T, 4]."""
    q, k, v = (
        linear_forward(x, W, np.zeros(4))[0] for W in (article.W_Q, article.W_K, article.W_V)
    )
    scores, _ = scores_forward(q, k)
    scaled, _ = scale_forward(scores, divisor=math.sqrt(4))
    masked, _ = mask_forward(scaled, mask)
    probs, _ = softmax_forward(masked, axis=-1)
    return probs, weighted_sum_forward(probs, v)[0]


def test_article_all_six_steps() -> None:
    probs, out = six_steps(article.X, causal_mask(3, 3))
    assert probs.round(2).tolist() == article.P.tolist()
    assert out.round(2).tolist() == article.OUT.tolist()


def test_article_without_mask_attention_does_not_know_the_order() -> None:
    everything = np.ones((3, 3), bool)
    _, out = six_steps(article.X, everything)
    assert out.round(2).tolist() == [
        [0.92, 0.43, 0.57, 0.08],
        [0.43, 0.92, 0.08, 0.57],
        [0.73, 0.73, 0.27, 0.27],
    ]
    order = [2, 0, 1]
    _, moved = six_steps(article.X[order], everything)
    np.testing.assert_allclose(moved, out[order], rtol=1e-14)


def test_article_with_mask_a_later_token_changes_no_earlier_output() -> None:
    changed = article.X.copy()
    changed[2] = [5.0, -3.0, 2.0, 1.0]
    _, before = six_steps(article.X, causal_mask(3, 3))
    _, after = six_steps(changed, causal_mask(3, 3))
    np.testing.assert_array_equal(after[:2], before[:2])
    assert not np.allclose(after[2], before[2])


def test_one_query_at_a_time_equals_all_at_once() -> None:
    """T = 1 of S positions, as in decoding: the last row of the whole table."""
    _, out = six_steps(article.X, causal_mask(3, 3))
    for n in (1, 2, 3):
        q, k, v = (
            linear_forward(x, W, np.zeros(4))[0]
            for x, W in (
                (article.X[n - 1 : n], article.W_Q),
                (article.X[:n], article.W_K),
                (article.X[:n], article.W_V),
            )
        )
        scaled, _ = scale_forward(scores_forward(q, k)[0], divisor=2.0)
        probs, _ = softmax_forward(mask_forward(scaled, causal_mask(1, n))[0], axis=-1)
        np.testing.assert_allclose(weighted_sum_forward(probs, v)[0], out[n - 1 : n], rtol=1e-15)
