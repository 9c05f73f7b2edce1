"""swiglu: the gated feed-forward network, by hand and against central differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npgpt.layers.swiglu import swiglu_backward, swiglu_forward
from tests.gradcheck import check_gradients


def test_by_hand() -> None:
    """x = 2: the gate is silu(2 · 1) = 2 σ(2), what passes 2 · 3 = 6, the answer 10 times that."""
    x, W_gate, W_up, W_down = (np.array([[n]]) for n in (2.0, 1.0, 3.0, 10.0))
    y, _ = swiglu_forward(x, W_gate, W_up, W_down)
    assert y.item() == pytest.approx(2 / (1 + math.exp(-2)) * 6 * 10, rel=1e-14)


def test_a_closed_gate_lets_nothing_pass(rng: np.random.Generator) -> None:
    x, W_up, W_down = rng.standard_normal((3, 4)), rng.random((4, 6)), rng.random((6, 4))
    assert not swiglu_forward(x, np.zeros((4, 6)), W_up, W_down)[0].any()


@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_gradients(activation: str, rng: np.random.Generator) -> None:
    shapes = [(2, 3, 4), (4, 6), (4, 6), (6, 4)]
    inputs = tuple(rng.standard_normal(shape) for shape in shapes)
    check_gradients(swiglu_forward, swiglu_backward, inputs, rng, activation=activation)


def test_gradients_of_biases(rng: np.random.Generator) -> None:
    shapes = [(2, 3, 4), (4, 6), (4, 6), (6, 4), (6,), (6,), (4,)]
    inputs = tuple(rng.standard_normal(shape) for shape in shapes)
    check_gradients(swiglu_forward, swiglu_backward, inputs, rng)
