"""layer_norm: every token's vector on the same scale (article 9.2)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npgpt.ops.layer_norm import layer_norm_backward, layer_norm_forward


def test_article_2_4_4_6() -> None:
    """Mean 4, variance 2 (divided by 4, not 3); then γ and β."""
    x = np.array([2.0, 4.0, 4.0, 6.0])
    plain, _ = layer_norm_forward(x, np.ones(4), np.zeros(4), eps=0.0)
    assert plain.round(2).tolist() == [-1.41, 0, 0, 1.41]
    assert plain[3] == pytest.approx(math.sqrt(2), rel=1e-15)
    gain, shift = np.array([2.0, 3.0, 1.0, 0.5]), np.array([0.0, 1.0, -1.0, 10.0])
    y, _ = layer_norm_forward(x, gain, shift, eps=0.0)
    assert y.round(2).tolist() == [-2.83, 1, -1, 10.71]


def test_naive_loop(rng: np.random.Generator) -> None:
    """Backward with the whole table ∂x̂_i/∂x_j, differentiated by the quotient rule."""
    d, eps = 4, 0.1
    x, dy = rng.standard_normal((2, 3, 5, d))
    weight, bias = rng.standard_normal((2, d))
    y, saved = layer_norm_forward(x, weight, bias, eps=eps)
    dx, dweight, dbias = layer_norm_backward(dy, saved)
    want_dweight, want_dbias = np.zeros(d), np.zeros(d)
    for token in np.ndindex(3, 5):
        mean = sum(x[token]) / d
        centred = [x[token][i] - mean for i in range(d)]
        s = math.sqrt(sum(c * c for c in centred) / d + eps)
        for i in range(d):
            assert y[token][i] == pytest.approx(centred[i] / s * weight[i] + bias[i], rel=1e-13)
            want_dbias[i] += dy[token][i]
            want_dweight[i] += dy[token][i] * centred[i] / s
        for j in range(d):
            want = sum(
                dy[token][i]
                * weight[i]
                * (((i == j) - 1 / d) / s - centred[i] * centred[j] / (d * s**3))
                for i in range(d)
            )
            assert dx[token][j] == pytest.approx(want, rel=1e-12, abs=1e-14)
    np.testing.assert_allclose(dweight, want_dweight, rtol=1e-13)
    np.testing.assert_allclose(dbias, want_dbias, rtol=1e-13)


@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_the_table_of_slopes_and_what_it_leaves_of_a_shift_and_a_stretch(rng, eps) -> None:
    """∂x̂_i/∂x_j = rstd (δ_ij - 1/d - x̂_i x̂_j / d), as the docstring derives it."""
    d = 5
    x = rng.standard_normal(d)
    x_hat, saved = layer_norm_forward(x, np.ones(d), np.zeros(d), eps=eps)
    rstd = 1 / math.sqrt(x.var() + eps)
    table = rstd * (np.eye(d) - 1 / d - np.outer(x_hat, x_hat) / d)
    for i, one in enumerate(np.eye(d)):
        np.testing.assert_allclose(layer_norm_backward(one, saved)[0], table[i], atol=1e-14)
    np.testing.assert_allclose(table @ np.ones(d), 0, atol=1e-14)
    np.testing.assert_allclose(table @ x_hat, eps * rstd**2 * rstd * x_hat, atol=1e-14)


def test_each_token_by_itself(rng: np.random.Generator) -> None:
    x, weight, bias = rng.standard_normal((2, 3, 4)), np.ones(4), np.zeros(4)
    changed = x.copy()
    changed[1, 2] *= -7
    before, _ = layer_norm_forward(x, weight, bias, eps=1e-5)
    after, _ = layer_norm_forward(changed, weight, bias, eps=1e-5)
    same = (after == before).all(axis=-1)
    assert same.tolist() == [[True, True, True], [True, True, False]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_vector_gives_the_bias(dtype: type[np.floating]) -> None:
    x = np.full((2, 3), 5, dtype)
    bias = np.array([1, 2, 3], dtype)
    y, saved = layer_norm_forward(x, np.ones(3, dtype), bias, eps=1e-5)
    dx, dweight, _ = layer_norm_backward(np.array([[1, 2, 3], [0, 0, 1]], dtype), saved)
    assert y.tolist() == [[1, 2, 3], [1, 2, 3]]
    assert np.isfinite(dx).all()
    assert dweight.tolist() == [0, 0, 0]


def test_eps_stands_under_the_root() -> None:
    y, _ = layer_norm_forward(np.array([-1.0, 1.0]), np.ones(2), np.zeros(2), eps=3.0)
    assert y.tolist() == [-0.5, 0.5]


def test_a_large_common_offset_costs_no_digits(rng: np.random.Generator) -> None:
    """The mean goes first; mean(x²) - mean² would be left with nothing in float32."""
    x = rng.integers(-50, 50, (5, 16)).astype(np.float32)
    weight, bias = np.ones(16, np.float32), np.zeros(16, np.float32)
    near, _ = layer_norm_forward(x, weight, bias, eps=1e-5)
    far, _ = layer_norm_forward(x + np.float32(2**16), weight, bias, eps=1e-5)
    np.testing.assert_allclose(far, near, rtol=0, atol=1e-3)


def test_the_gradient_forgets_shifts_and_stretches(rng: np.random.Generator) -> None:
    """Neither a shift nor, without eps, a stretch of x changes y, so dx stands at right angles."""
    x, dy = rng.standard_normal((2, 5, 7))
    weight, bias = rng.standard_normal((2, 7))
    _, saved = layer_norm_forward(x, weight, bias, eps=0.0)
    dx, _, _ = layer_norm_backward(dy, saved)
    assert dx.sum(axis=-1) == pytest.approx(0, abs=1e-13)
    assert (dx * x).sum(axis=-1) == pytest.approx(0, abs=1e-13)


def test_nan_stays_in_its_token() -> None:
    x = np.array([[np.nan, 1.0], [-1.0, 1.0]])
    y, _ = layer_norm_forward(x, np.ones(2), np.zeros(2), eps=0.0)
    assert np.isnan(y[0]).all()
    assert y[1].tolist() == [-1, 1]


def test_a_variance_that_overflows_is_nan_as_in_torch() -> None:
    """Not the bias alone; in float64 the same numbers are sound."""
    x = np.array([[1e20, -1e20, 3e20, 0], [1, 2, 3, 4]])
    sound, _ = layer_norm_forward(x, np.ones(4), np.zeros(4), eps=1e-5)
    with np.errstate(over="ignore"):
        y, _ = layer_norm_forward(
            x.astype(np.float32), np.ones(4, np.float32), np.zeros(4, np.float32), eps=1e-5
        )
    assert np.isnan(y[0]).all()
    np.testing.assert_allclose(y[1], sound[1], rtol=1e-6)
    assert sound[0].round(2).tolist() == [0.17, -1.18, 1.52, -0.51]
