"""softmax: from scores to weights (article 7.3 step 5, 7.4)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npgpt.ops.softmax import check_logits, log_softmax, softmax_backward, softmax_forward
from tests.ops import article


def test_article_step_5_weights() -> None:
    P, _ = softmax_forward(article.MASKED, axis=-1)
    assert P.round(2).tolist() == article.P.tolist()
    assert (P[np.isneginf(article.MASKED)] == 0).all()
    assert P.sum(axis=-1) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize(
    ("score", "digits", "weights", "gradient"),
    [(10.0, 5, [0.99995, 0.00005], 0.00005), (0.88, 2, [0.71, 0.29], 0.21)],
    ids=["saturated", "scaled"],
)
def test_article_a_saturated_softmax_has_no_gradient(
    score: float, digits: int, weights: list[float], gradient: float
) -> None:
    probs, saved = softmax_forward(np.array([score, 0.0]), axis=-1)
    slope = softmax_backward(np.array([1.0, 0.0]), saved)[0]  # of the first weight
    assert probs.round(digits).tolist() == weights
    assert round(float(slope), digits) == gradient
    assert slope == pytest.approx(probs[0] * (1 - probs[0]), rel=1e-11)


def test_naive_loop(rng: np.random.Generator) -> None:
    """Forward from the definition, backward with the whole table ∂p_i/∂x_j = p_i (δ_ij - p_j)."""
    x, dprobs = rng.standard_normal((2, 3, 5, 7))
    probs, saved = softmax_forward(x, axis=-1)
    dx = softmax_backward(dprobs, saved)
    for row in np.ndindex(3, 5):
        exps = [math.exp(score) for score in x[row]]
        p = [e / sum(exps) for e in exps]
        np.testing.assert_allclose(probs[row], p, rtol=1e-14)
        for j in range(7):
            want = sum(dprobs[row][i] * p[i] * ((i == j) - p[j]) for i in range(7))
            assert dx[row][j] == pytest.approx(want, abs=1e-15)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_any_axis_sums_to_1(axis: int, rng: np.random.Generator) -> None:
    x, dprobs = rng.standard_normal((2, 2, 5, 7))
    probs, saved = softmax_forward(x, axis=axis)
    last, saved_last = softmax_forward(np.moveaxis(x, axis, -1), axis=-1)
    dlast = softmax_backward(np.moveaxis(dprobs, axis, -1), saved_last)
    assert probs.sum(axis=axis) == pytest.approx(1, abs=1e-15)
    np.testing.assert_allclose(probs, np.moveaxis(last, -1, axis), rtol=1e-14)
    dx = softmax_backward(dprobs, saved)
    np.testing.assert_allclose(dx, np.moveaxis(dlast, -1, axis), rtol=0, atol=1e-16)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_query_that_may_attend_to_nothing_gets_zeros(dtype: type[np.floating]) -> None:
    x = np.array([[-np.inf, -np.inf, -np.inf], [-np.inf, 0.0, 0.0]], dtype)
    probs, saved = softmax_forward(x, axis=-1)
    dx = softmax_backward(np.array([[1, 2, 3], [4, 5, 7]], dtype), saved)
    assert probs.tolist() == [[0, 0, 0], [0, 0.5, 0.5]]
    assert dx.tolist() == [[0, 0, 0], [0, -0.5, 0.5]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_scores_do_not_overflow(dtype: type[np.floating]) -> None:
    x = np.array([[1e4, -1e4, 1e4], [-1e4, -1e4, -1e4], [1e30, 0, -1e30]], dtype)
    probs, saved = softmax_forward(x, axis=-1)
    want = np.array([[0.5, 0, 0.5], [1 / 3, 1 / 3, 1 / 3], [1, 0, 0]])
    np.testing.assert_allclose(probs, want, rtol=1e-7)
    assert np.isfinite(softmax_backward(x, saved)).all()


def test_a_shift_of_all_scores_changes_nothing(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5))
    moved, _ = softmax_forward(x + 1000, axis=-1)
    np.testing.assert_allclose(moved, softmax_forward(x, axis=-1)[0], rtol=1e-12)


def test_nan_stays_in_its_row() -> None:
    probs, _ = softmax_forward(np.array([[np.nan, 1.0], [2.0, 2.0]]), axis=-1)
    assert np.isnan(probs[0]).all()
    assert probs[1].tolist() == [0.5, 0.5]


def test_infinite_score_is_not_passed_off_as_a_weight() -> None:
    with np.errstate(invalid="ignore"):  # ∞ - ∞
        probs, _ = softmax_forward(np.array([[np.inf, 1.0]]), axis=-1)
    assert np.isnan(probs).all()


def test_one_key_gets_all_the_weight() -> None:
    probs, saved = softmax_forward(np.array([[-3.0]]), axis=-1)
    assert probs.tolist() == [[1]]
    assert softmax_backward(np.array([[2.5]]), saved).tolist() == [[0]]


@pytest.mark.parametrize(("dtype", "digits"), [(np.float32, 2e-6), (np.float64, 1e-14)])
def test_log_softmax_is_the_logarithm_of_softmax(
    dtype: type[np.floating], digits: float, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((2, 3, 7)).astype(dtype)
    x[0, 1, 4] = -np.inf
    before, log_probs = x.copy(), log_softmax(x)
    assert log_probs.dtype == dtype
    assert np.array_equal(x, before)
    with np.errstate(divide="ignore"):  # log 0 of the closed score
        want = np.log(softmax_forward(x.astype(np.float64), axis=-1)[0])
    np.testing.assert_allclose(log_probs, want, rtol=digits)


def test_log_softmax_is_exact_where_the_probability_rounds_to_0() -> None:
    """Of (1000, 0, 0) the second probability is e^-1000, which no float holds."""
    assert log_softmax(np.array([1000.0, 0.0, 0.0])).tolist() == [0, -1000, -1000]
    thirds = log_softmax(np.array([-1e4, -1e4, -1e4]))
    assert thirds == pytest.approx(math.log(1 / 3), rel=1e-12)


def test_logits_of_which_no_probabilities_come() -> None:
    check_logits(np.array([[0.0, -np.inf], [-np.inf, -np.inf]]))
    for broken in (np.nan, np.inf):
        with pytest.raises(ValueError, match="the logits are not finite"):
            check_logits(np.array([[0.0, 1.0], [broken, -np.inf]]))
