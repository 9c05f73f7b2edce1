"""cross_entropy: the loss of predicting the next token (article 7.5)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npgpt.ops.cross_entropy import IGNORE_INDEX, cross_entropy_backward, cross_entropy_forward
from tests.gradcheck import check_gradients, relative_error


def test_no_idea_costs_ln_V() -> None:
    loss, _ = cross_entropy_forward(np.zeros((2, 8, 16)), np.arange(16).reshape(2, 8))
    assert loss == pytest.approx(math.log(16), rel=1e-15)
    assert round(float(loss), 2) == 2.77


def test_naive_loop(rng: np.random.Generator) -> None:
    logits, targets = rng.standard_normal((2, 5, 7)), rng.integers(0, 7, (2, 5))
    targets[0, 1] = targets[1, 4] = -100
    loss, saved = cross_entropy_forward(logits, targets)
    dlogits = cross_entropy_backward(3.0, saved)
    total, kept = 0.0, 8
    for b, t in np.ndindex(2, 5):
        exps = [math.exp(score) for score in logits[b, t]]
        probs = [e / sum(exps) for e in exps]
        target = targets[b, t]
        if target == -100:
            assert (dlogits[b, t] == 0).all()
            continue
        total -= math.log(probs[target])
        want = [3 / kept * (p - (v == target)) for v, p in enumerate(probs)]
        np.testing.assert_allclose(dlogits[b, t], want, rtol=0, atol=1e-15)
    assert loss == pytest.approx(total / kept, rel=1e-14)


def test_article_all_T_losses_in_one_pass(rng: np.random.Generator) -> None:
    """One pass over T positions is the mean of T separate predictions."""
    logits, targets = rng.standard_normal((5, 7)), rng.integers(0, 7, 5)
    loss, saved = cross_entropy_forward(logits, targets)
    dlogits = cross_entropy_backward(1.0, saved)
    single = [cross_entropy_forward(logits[t], targets[t]) for t in range(5)]
    assert loss == pytest.approx(sum(one for one, _ in single) / 5, rel=1e-14)
    for t, (_, one_saved) in enumerate(single):
        one_dlogits = cross_entropy_backward(1 / 5, one_saved)
        np.testing.assert_allclose(dlogits[t], one_dlogits, rtol=0, atol=1e-16)


def test_the_mean_counts_kept_targets_only(rng: np.random.Generator) -> None:
    logits, targets = rng.standard_normal((4, 7)), np.array([2, -100, -100, 5])
    loss, saved = cross_entropy_forward(logits, targets)
    kept_loss, kept_saved = cross_entropy_forward(logits[[0, 3]], targets[[0, 3]])
    assert loss == pytest.approx(kept_loss, rel=1e-15)
    dlogits, kept_dlogits = (cross_entropy_backward(1.0, s) for s in (saved, kept_saved))
    np.testing.assert_allclose(dlogits[[0, 3]], kept_dlogits, rtol=1e-15)


@pytest.mark.parametrize("ignore_index", [-1, 3, 9])
def test_another_ignore_index(ignore_index: int, rng: np.random.Generator) -> None:
    logits, targets = rng.standard_normal((3, 5)), np.array([0, ignore_index, 2])
    check_gradients(
        cross_entropy_forward, cross_entropy_backward, (logits, targets), rng,
        ignore_index=ignore_index,
    )  # fmt: skip
    loss, _ = cross_entropy_forward(logits, targets, ignore_index=ignore_index)
    assert loss == cross_entropy_forward(logits[[0, 2]], targets[[0, 2]])[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("targets", [np.full((2, 3), IGNORE_INDEX), np.zeros((0, 4), int)])
def test_nothing_to_predict_is_loss_0(targets: np.ndarray, dtype: type[np.floating]) -> None:
    loss, saved = cross_entropy_forward(np.ones((*targets.shape, 5), dtype), targets)
    dlogits = cross_entropy_backward(1.0, saved)
    assert loss == 0
    assert loss.dtype == dlogits.dtype == dtype
    assert dlogits.shape == (*targets.shape, 5)
    assert (dlogits == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_logits_are_exact(dtype: type[np.floating]) -> None:
    logits = np.array([[1e4, -1e4, 0], [-1e4, -1e4, -1e4], [0, 0, 1e4]], dtype)
    loss, saved = cross_entropy_forward(logits, np.array([0, 1, 1]))
    third = 1 / 3
    want = np.array([[0, 0, 0], [third, third - 1, third], [0, -1, 1]]) / 3
    assert loss == pytest.approx((0 + math.log(3) + 1e4) / 3, rel=1e-6)
    np.testing.assert_allclose(cross_entropy_backward(1.0, saved), want, rtol=0, atol=1e-7)


@pytest.mark.parametrize("offset", [-100, 10_000])  # GPT-2's logits lie around -100
@pytest.mark.parametrize(("dtype", "digits"), [(np.float32, 2e-7), (np.float64, 1e-15)])
def test_logits_far_from_zero_cost_no_digits(
    offset: int, dtype: type[np.floating], digits: float, rng: np.random.Generator
) -> None:
    logits = (rng.integers(-64, 64, (4, 300)) / 16).astype(dtype)  # exact, moved or not
    targets = rng.integers(0, 300, 4)
    near, near_saved = cross_entropy_forward(logits, targets)
    far, far_saved = cross_entropy_forward(logits + dtype(offset), targets)
    assert far == pytest.approx(near, rel=digits)
    dnear, dfar = cross_entropy_backward(1.0, near_saved), cross_entropy_backward(1.0, far_saved)
    assert relative_error(dfar, dnear) <= digits
    assert dfar.sum(axis=-1) == pytest.approx(0, abs=digits)


def test_a_closed_token_costs_nothing_until_it_is_the_target() -> None:
    logits = np.array([[0.0, -np.inf, 0.0]])
    loss, saved = cross_entropy_forward(logits, np.array([2]))
    assert loss == pytest.approx(math.log(2), rel=1e-15)
    assert cross_entropy_backward(1.0, saved).tolist() == [[0.5, 0, -0.5]]
    assert cross_entropy_forward(logits, np.array([1]))[0] == np.inf


def test_nan_is_not_hidden() -> None:
    loss, _ = cross_entropy_forward(np.array([[np.nan, 0.0], [1.0, 2.0]]), np.array([1, 0]))
    assert np.isnan(loss)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_small_integer_targets(dtype: type[np.integer], rng: np.random.Generator) -> None:
    logits, targets = rng.standard_normal((4, 5)), np.array([0, 4, 2, 2])
    loss, saved = cross_entropy_forward(logits, targets.astype(dtype))
    want, want_saved = cross_entropy_forward(logits, targets)
    assert loss == want
    np.testing.assert_array_equal(
        cross_entropy_backward(1.0, saved), cross_entropy_backward(1.0, want_saved)
    )


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([0, 1], r"^targets have shape \[2\], but logits \[3, 4\] want \[3\]\.$"),
        ([[0], [1], [2]], r"^targets have shape \[3, 1\], but logits \[3, 4\] want \[3\]\.$"),
        ([0.0, 1.0, 2.0], r"^targets must be integers, but have dtype float64\.$"),
        ([True, False, True], r"^targets must be integers, but have dtype bool\.$"),
        ([0, 4, 1], r"^target 4 at index \[1\] is neither in 0\.\.3 nor -100\.$"),
        ([0, 1, -1], r"^target -1 at index \[2\] is neither in 0\.\.3 nor -100\.$"),
    ],
)
def test_impossible_targets_are_refused(targets: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cross_entropy_forward(np.zeros((3, 4)), np.array(targets))
