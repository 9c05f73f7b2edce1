"""normal_cdf: Φ and its density."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npgpt.ops.normal_cdf import normal_cdf, normal_pdf
from tests.gradcheck import derivative


@pytest.mark.parametrize(
    ("x", "phi"),
    [  # to 20 digits, from 40-digit arithmetic
        (-37.0, 5.7255712225245768227e-300),
        (-20.0, 2.7536241186062336951e-89),
        (-10.0, 7.619853024160526066e-24),
        (-5.0, 2.8665157187919391167e-7),
        (-1.0, 0.15865525393145705141),
        (0.0, 0.5),
        (0.5, 0.69146246127401310364),
        (3.0, 0.99865010196836990547),
    ],
)
def test_reference_values(x: float, phi: float) -> None:
    digits_lost_in_the_tail = 1e-15 * (1 + x * x)  # exp(-x²/2) multiplies the rounding of x²
    assert normal_cdf(np.array([x]))[0] == pytest.approx(phi, rel=digits_lost_in_the_tail, abs=0)


def test_float64_against_the_standard_library() -> None:
    x = np.linspace(-40, 40, 20001)
    want = np.array([0.5 * math.erfc(-number / math.sqrt(2)) for number in x])
    np.testing.assert_allclose(normal_cdf(x), want, rtol=0, atol=5e-16)
    tail = (x > -37) & (x < 0)
    np.testing.assert_allclose(normal_cdf(x)[tail], want[tail], rtol=1e-12)


def test_float32_error() -> None:
    x = np.linspace(-20, 20, 20001).astype(np.float32)
    phi = normal_cdf(x)
    assert phi.dtype == np.float32
    np.testing.assert_allclose(phi, normal_cdf(x.astype(np.float64)), rtol=0, atol=3e-7)


def test_both_halves_add_up_to_1_and_it_never_falls() -> None:
    x = np.linspace(-9, 9, 2001)
    np.testing.assert_allclose(normal_cdf(x) + normal_cdf(-x), 1, rtol=0, atol=2e-16)
    assert (np.diff(normal_cdf(x)) >= 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ends(dtype: type[np.floating]) -> None:
    x = np.array([-np.inf, -1e10, 1e10, np.inf, np.nan], dtype)
    np.testing.assert_array_equal(normal_cdf(x), [0, 0, 1, 1, np.nan])
    np.testing.assert_array_equal(normal_pdf(x), [0, 0, 0, 0, np.nan])


@pytest.mark.parametrize("x", [-4.0, -1.0, -0.3, 0.2, 2.5])
def test_the_density_is_the_derivative(x: float) -> None:
    slope = derivative(lambda step: float(normal_cdf(np.array([x + step]))[0]))
    assert normal_pdf(np.array([x]))[0] == pytest.approx(slope, abs=1e-12)
