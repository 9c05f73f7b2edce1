"""weighted_sum: mixing the values by the weights (article 7.3 step 6)."""

from __future__ import annotations

import numpy as np

from npgpt.ops.weighted_sum import weighted_sum_backward, weighted_sum_forward
from tests.ops import article


def test_article_step_6_output() -> None:
    """The weights unrounded: the printed 0.27 + 0.45 would give 0.72."""
    weights = np.exp(article.MASKED)
    weights /= weights.sum(axis=-1, keepdims=True)
    out, _ = weighted_sum_forward(weights, article.X)
    assert out.round(2).tolist() == article.OUT.tolist()


def test_naive_loop(rng: np.random.Generator) -> None:
    probs, v, dcontext = (rng.standard_normal(s) for s in [(2, 5, 7), (2, 7, 4), (2, 5, 4)])
    context, saved = weighted_sum_forward(probs, v)
    dprobs, dv = weighted_sum_backward(dcontext, saved)
    want, want_dprobs, want_dv = np.zeros_like(context), np.zeros_like(probs), np.zeros_like(v)
    for h, i, j, n in np.ndindex(2, 5, 7, 4):
        want[h, i, n] += probs[h, i, j] * v[h, j, n]
        want_dprobs[h, i, j] += dcontext[h, i, n] * v[h, j, n]
        want_dv[h, j, n] += probs[h, i, j] * dcontext[h, i, n]
    for got, expected in ((context, want), (dprobs, want_dprobs), (dv, want_dv)):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-14)


def test_no_weights_give_zeros() -> None:
    """The query that may attend to nothing passes on nothing, forward and backward."""
    v = np.arange(8.0).reshape(2, 4)
    context, saved = weighted_sum_forward(np.zeros((1, 2)), v)
    _, dv = weighted_sum_backward(np.ones((1, 4)), saved)
    assert context.tolist() == [[0, 0, 0, 0]]
    assert (dv == 0).all()
