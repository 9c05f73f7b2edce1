"""activation: the nonlinearity of the FFN (article 8.1)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from npgpt.ops.activation import (
    ACTIVATIONS,
    gelu_erf_forward,
    gelu_tanh_backward,
    gelu_tanh_forward,
    relu_backward,
    relu_forward,
    tanh_backward,
    tanh_forward,
)

SQRT_2 = math.sqrt(2)
DEFINITIONS: dict[str, Callable[[float], float]] = {
    "gelu_new": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_pytorch_tanh": lambda x: DEFINITIONS["gelu_new"](x),
    "gelu": lambda x: 0.5 * x * math.erfc(-x / SQRT_2),
    "relu": lambda x: max(x, 0.0),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "tanh": math.tanh,
}


def test_every_activation_has_a_definition_to_be_held_against() -> None:
    assert ACTIVATIONS.keys() == DEFINITIONS.keys()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_definition_on_a_dense_grid(name: str) -> None:
    x = np.linspace(-40, 40, 20001)
    y, _ = ACTIVATIONS[name][0](x)
    want = np.array([DEFINITIONS[name](float(number)) for number in x])
    np.testing.assert_allclose(y, want, rtol=4e-16, atol=1e-15)


@pytest.mark.parametrize(
    ("x", "tanh_form", "exact_form"),
    [  # to 18 digits, from 40-digit arithmetic
        (-3.0, -0.00363739208177301884, -0.00404969409489028358),
        (-1.0, -0.158808009391723295, -0.158655253931457051),
        (0.0, 0.0, 0.0),
        (0.5, 0.345714009825143922, 0.345731230637006552),
        (1.0, 0.841191990608276705, 0.841344746068542949),
        (3.0, 2.99636260791822698, 2.99595030590510972),
    ],
)
def test_reference_values_of_both_gelus(x: float, tanh_form: float, exact_form: float) -> None:
    one = np.array([x])
    assert gelu_tanh_forward(one)[0][0] == pytest.approx(tanh_form, rel=1e-14, abs=0)
    assert gelu_erf_forward(one)[0][0] == pytest.approx(exact_form, rel=1e-14, abs=0)


def test_the_two_gelus_are_not_interchangeable() -> None:
    """They part by nearly 5e-4, so a tolerance below 4e-4 notices a swap."""
    x = np.linspace(-10, 10, 4001)
    apart = np.abs(gelu_tanh_forward(x)[0] - gelu_erf_forward(x)[0]).max()
    assert 4e-4 < apart < 5e-4


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_small_values_in_the_left_tail_keep_their_digits(name: str) -> None:
    """1 + erf and 1 + tanh would have lost them all."""
    x = np.linspace(-37, -1, 5001)
    want = np.array([DEFINITIONS[name](float(number)) for number in x])
    np.testing.assert_allclose(ACTIVATIONS[name][0](x)[0], want, rtol=1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_float32_is_right_to_its_last_digits(name: str) -> None:
    forward, backward = ACTIVATIONS[name]
    x = np.linspace(-9, 9, 20001).astype(np.float32)
    y, saved = forward(x)
    exact, exact_saved = forward(x.astype(np.float64))
    slope, exact_slope = backward(np.ones_like(x), saved), backward(np.ones(x.shape), exact_saved)
    np.testing.assert_allclose(y, exact, rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(slope, exact_slope, rtol=1e-7, atol=2e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_huge_inputs_stay_finite(name: str, dtype: type[np.floating]) -> None:
    forward, backward = ACTIVATIONS[name]
    x = np.array([-1e10, -1e4, -1e3, 1e3, 1e4, 1e10], dtype)
    y, saved = forward(x)
    slope = backward(np.ones_like(x), saved)
    if name == "tanh":
        assert y.tolist() == [-1, -1, -1, 1, 1, 1]
        assert slope.tolist() == [0] * 6
    else:
        assert y.tolist() == np.maximum(x, 0).tolist()
        assert slope.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nan_is_not_hidden(name: str) -> None:
    y, _ = ACTIVATIONS[name][0](np.array([np.nan, 0.0]))
    assert np.isnan(y[0])
    assert y[1] == 0


def test_infinity_where_it_makes_sense() -> None:
    ends = np.array([-np.inf, np.inf])
    y, saved = relu_forward(ends)
    assert y.tolist() == [0, np.inf]
    assert relu_backward(np.ones(2), saved).tolist() == [0, 1]
    y, saved = tanh_forward(ends)
    assert y.tolist() == [-1, 1]
    assert tanh_backward(np.ones(2), saved).tolist() == [0, 0]


def test_relu_has_no_slope_at_zero() -> None:
    _, saved = relu_forward(np.array([-0.0, 0.0, 1e-300]))
    assert relu_backward(np.full(3, 7.0), saved).tolist() == [0, 0, 7]


def test_in_pieces_and_in_threads_as_in_one_go(rng: np.random.Generator, monkeypatch) -> None:
    x, dy = rng.standard_normal((2, 3, 7))
    y, saved = gelu_tanh_forward(x)
    dx = gelu_tanh_backward(dy, saved)
    monkeypatch.setattr("npgpt.ops.chunks.SIZE", 5)
    monkeypatch.setattr("npgpt.ops.chunks.MANY", 0)
    y_cut, saved = gelu_tanh_forward(x)
    np.testing.assert_array_equal(y_cut, y)
    np.testing.assert_array_equal(gelu_tanh_backward(dy, saved), dx)
