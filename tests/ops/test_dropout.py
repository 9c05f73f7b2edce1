"""dropout: silence at random, scale up the rest."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.ops.dropout import dropout_backward, dropout_forward


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_share_of_silence_and_expectation(p: float, rng: np.random.Generator) -> None:
    n = 200_000
    y, _ = dropout_forward(np.full((2, n // 2), 3.0), p=p, rng=rng)
    silent = y == 0
    spread = 5 * np.sqrt(p * (1 - p) / n)  # five standard deviations
    assert silent.mean() == pytest.approx(p, abs=spread)
    assert y[~silent] == pytest.approx(3 / (1 - p), rel=1e-15)
    assert y.mean() == pytest.approx(3, abs=3 * spread / (1 - p))


def test_backward_uses_the_same_mask(rng: np.random.Generator) -> None:
    x, dy = np.full((5, 7), 2.0), rng.standard_normal((5, 7))
    y, saved = dropout_forward(x, p=0.4, rng=rng)
    np.testing.assert_allclose(dropout_backward(dy, saved), dy * y / 2, rtol=1e-15)


def test_same_state_same_mask_in_both_dtypes() -> None:
    x = np.random.default_rng(1).standard_normal((300, 40)) + 10
    double, _ = dropout_forward(x, p=0.1, rng=np.random.default_rng(5))
    single, _ = dropout_forward(x.astype(np.float32), p=0.1, rng=np.random.default_rng(5))
    again, _ = dropout_forward(x, p=0.1, rng=np.random.default_rng(5))
    other, _ = dropout_forward(x, p=0.1, rng=np.random.default_rng(6))
    np.testing.assert_array_equal(double == 0, single == 0)
    np.testing.assert_array_equal(double, again)
    assert ((double == 0) != (other == 0)).any()


def test_a_generator_moves_on(rng: np.random.Generator) -> None:
    x = np.ones(100)
    first, _ = dropout_forward(x, p=0.5, rng=rng)
    second, _ = dropout_forward(x, p=0.5, rng=rng)
    assert (first != second).any()


def test_nothing_to_drop_leaves_everything_alone() -> None:
    x, rng = np.arange(4.0), np.random.default_rng(5)
    for p, generator in ((0.0, rng), (0.5, None)):
        y, saved = dropout_forward(x, p=p, rng=generator)
        assert y is x
        assert dropout_backward(x, saved) is x
    assert rng.random() == np.random.default_rng(5).random()  # and draws nothing


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, float("nan")])
@pytest.mark.parametrize("generator", [None, np.random.default_rng(5)], ids=["no rng", "rng"])
def test_impossible_probability_is_refused(p: float, generator: np.random.Generator | None) -> None:
    with pytest.raises(ValueError, match=r"^dropout probability must be in \[0, 1\), but is "):
        dropout_forward(np.ones(3), p=p, rng=generator)
