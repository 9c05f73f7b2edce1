"""label_smoothing: cross-entropy against a target that is not quite certain."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npgpt.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward
from npgpt.ops.label_smoothing import label_smoothing_backward, label_smoothing_forward


def test_naive_loop(rng: np.random.Generator) -> None:
    """Σ over the vocabulary of -q log p, with q the smoothed target."""
    logits, targets = rng.standard_normal((2, 5, 7)), rng.integers(0, 7, (2, 5))
    targets[0, 1] = targets[1, 4] = -100
    loss, saved = label_smoothing_forward(logits, targets, smoothing=0.1)
    dlogits = label_smoothing_backward(3.0, saved)
    total, kept = 0.0, 8
    for where in np.ndindex(2, 5):
        exps = [math.exp(score) for score in logits[where]]
        probs = [e / sum(exps) for e in exps]
        if targets[where] == -100:
            assert (dlogits[where] == 0).all()
            continue
        q = [0.9 * (v == targets[where]) + 0.1 / 7 for v in range(7)]
        total -= sum(share * math.log(p) for share, p in zip(q, probs, strict=True))
        want = [3 / kept * (p - share) for share, p in zip(q, probs, strict=True)]
        np.testing.assert_allclose(dlogits[where], want, rtol=0, atol=1e-15)
    assert loss == pytest.approx(total / kept, rel=1e-14)


def test_a_batch_takes_one_mean(rng: np.random.Generator) -> None:
    logits, targets = rng.standard_normal((3, 4, 6)), rng.integers(0, 6, (3, 4))
    rows = [label_smoothing_forward(logits[b], targets[b], smoothing=0.2)[0] for b in range(3)]
    whole, _ = label_smoothing_forward(logits, targets, smoothing=0.2)
    assert whole == pytest.approx(np.mean(rows), rel=1e-14)


def test_without_smoothing_it_is_cross_entropy(rng: np.random.Generator) -> None:
    logits, targets = rng.standard_normal((4, 9)), np.array([8, -100, 0, 3])
    loss, saved = label_smoothing_forward(logits, targets, smoothing=0.0)
    want, want_saved = cross_entropy_forward(logits, targets)
    assert loss == want
    np.testing.assert_array_equal(
        label_smoothing_backward(1.0, saved), cross_entropy_backward(1.0, want_saved)
    )


def test_certainty_costs() -> None:
    """The best logits give the target 1 - ε + ε/V, and no gradient is left there."""
    V, smoothing = 5, 0.1
    best = np.log(np.where(np.arange(V) == 2, 1 - smoothing + smoothing / V, smoothing / V))
    loss, saved = label_smoothing_forward(best[None], np.array([2]), smoothing=smoothing)
    assert np.abs(label_smoothing_backward(1.0, saved)).max() < 1e-15
    certain = np.where(np.arange(V) == 2, 40.0, 0.0)[None]
    assert label_smoothing_forward(certain, np.array([2]), smoothing=smoothing)[0] > loss + 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("targets", [np.full((2, 3), -100), np.zeros((0, 4), int)])
def test_nothing_to_predict_is_loss_0(targets: np.ndarray, dtype: type[np.floating]) -> None:
    logits = np.ones((*targets.shape, 5), dtype)
    loss, saved = label_smoothing_forward(logits, targets, smoothing=0.1)
    dlogits = label_smoothing_backward(1.0, saved)
    assert loss == 0
    assert loss.dtype == dlogits.dtype == dtype
    assert dlogits.shape == logits.shape
    assert (dlogits == 0).all()


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, math.nan])
def test_smoothing_is_a_share(smoothing: float) -> None:
    with pytest.raises(ValueError, match=r"label smoothing must be in \[0, 1\), but is"):
        label_smoothing_forward(np.zeros((1, 2)), np.array([0]), smoothing=smoothing)


def test_impossible_targets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"target 4 at index \[1\] is neither in 0\.\.3 nor -100"):
        label_smoothing_forward(np.zeros((3, 4)), np.array([0, 4, 1]), smoothing=0.1)
