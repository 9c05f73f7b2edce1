"""rms_norm: LayerNorm without the mean (article 9.2)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npgpt.ops.layer_norm import layer_norm_forward
from npgpt.ops.rms_norm import rms_norm_backward, rms_norm_forward


def test_by_hand() -> None:
    """Mean square of (2, 4, 4, 8): (4 + 16 + 16 + 64) / 4 = 25; every number is divided by 5."""
    y, _ = rms_norm_forward(np.array([2.0, 4, 4, 8]), np.array([1.0, 1, 10, 1]), eps=0.0)
    np.testing.assert_allclose(y, [0.4, 0.8, 8, 1.6], rtol=1e-15)


def test_naive_loop(rng: np.random.Generator) -> None:
    """Backward with the whole table ∂x̂_i/∂x_j."""
    d, eps = 4, 0.1
    x, dy = rng.standard_normal((2, 3, 5, d))
    weight = rng.standard_normal(d)
    y, saved = rms_norm_forward(x, weight, eps=eps)
    dx, dweight = rms_norm_backward(dy, saved)
    want_dweight = np.zeros(d)
    for token in np.ndindex(3, 5):
        v = x[token]
        r = math.sqrt(sum(c * c for c in v) / d + eps)
        for i in range(d):
            assert y[token][i] == pytest.approx(v[i] / r * weight[i], rel=1e-13)
            want_dweight[i] += dy[token][i] * v[i] / r
        for j in range(d):
            want = sum(
                dy[token][i] * weight[i] * ((i == j) / r - v[i] * v[j] / (d * r**3))
                for i in range(d)
            )
            assert dx[token][j] == pytest.approx(want, rel=1e-12, abs=1e-14)
    np.testing.assert_allclose(dweight, want_dweight, rtol=1e-13)


def test_without_a_mean_it_is_layer_norm(rng: np.random.Generator) -> None:
    x, weight = rng.standard_normal((5, 8)), rng.standard_normal(8)
    centred = x - x.mean(axis=-1, keepdims=True)
    same, _ = layer_norm_forward(x, weight, np.zeros(8), eps=1e-5)
    np.testing.assert_allclose(rms_norm_forward(centred, weight, eps=1e-5)[0], same, rtol=1e-12)
    assert np.abs(rms_norm_forward(x, weight, eps=1e-5)[0] - same).max() > 1e-2


def test_zeros_stay_zeros() -> None:
    y, saved = rms_norm_forward(np.zeros((2, 3)), np.ones(3), eps=1e-6)
    dx, _ = rms_norm_backward(np.ones((2, 3)), saved)
    assert not y.any()
    assert np.isfinite(dx).all()


def test_squares_that_overflow_are_nan() -> None:
    """As in LayerNorm, and unlike torch, whose RMSNorm says nothing and returns zeros."""
    x, weight = np.array([[1e20, -1e20], [3, 4]], np.float32), np.ones(2, np.float32)
    with np.errstate(over="ignore"):
        y, _ = rms_norm_forward(x, weight, eps=1e-5)
    assert np.isnan(y[0]).all()
    np.testing.assert_allclose(y[1], x[1] / np.sqrt(np.float32(12.5)), rtol=1e-6)
