"""Check hand-written gradients against central differences, in float64.

`check_gradients` looks at every coordinate of one operation; `check_direction` at one direction
for each parameter of a whole model. Leaves out points where a function has a kink (ReLU at 0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def check_gradients(
    forward: Callable[..., tuple[Any, Any]],
    backward: Callable[..., Any],
    inputs: tuple[np.ndarray, ...],
    rng: np.random.Generator,
    *,
    tolerance: float = 1e-10,
    **settings: Any,
) -> None:
    """Assert that `backward` gives the derivatives of Σ dy y for a random dy.

    A dy of ones would hide errors: it makes the gradients of softmax and LayerNorm vanish.

    Args:
        forward: forward(*inputs, **settings) -> (y, saved).
        backward: backward(dy, saved) -> the gradients of the float inputs, in their order.
        inputs: float64 arrays, and integer or boolean ones, which have no gradient.
        tolerance: largest ‖gradient - derivative‖ / ‖derivative‖ allowed, for each input.
    """
    y, saved = forward(*inputs, **settings)
    dy = rng.standard_normal(np.shape(y))
    grads = backward(dy, saved)
    grads = grads if isinstance(grads, tuple) else (grads,)
    places = [i for i, x in enumerate(inputs) if np.issubdtype(x.dtype, np.floating)]
    assert len(grads) == len(places), f"{len(grads)} gradients for {len(places)} float inputs"
    for i, grad in zip(places, grads, strict=True):

        def total(x: np.ndarray, i: int = i) -> float:
            changed, _ = forward(*inputs[:i], x, *inputs[i + 1 :], **settings)
            return float(np.sum(dy * changed, where=~np.isneginf(changed)))  # -∞ is a constant

        assert grad.shape == inputs[i].shape, f"input {i}: {grad.shape} != {inputs[i].shape}"
        error = relative_error(grad, numerical_gradient(total, inputs[i]))
        assert error <= tolerance, f"the gradient of input {i} is off by {error:.1e}"


def check_direction(
    loss_fn: Callable[[dict[str, np.ndarray]], float],
    params: dict[str, np.ndarray],
    grads: dict[str, np.ndarray],
    rng: np.random.Generator,
    *,
    tolerance: float = 1e-8,
) -> None:
    """Assert that `grads` predict how the loss changes when each parameter moves a little.

    One direction for each parameter: half along its gradient, so that the change is not lost in
    rounding, half at random, so that an error at right angles to the gradient shows as well.

    Args:
        loss_fn: loss_fn(params) -> loss, without randomness.
        params: float64 arrays by name.
        grads: the gradients of the loss, keyed and shaped like params.
        tolerance: largest |slope - predicted slope| / ‖gradient‖ allowed, for each parameter.
    """
    assert grads.keys() == params.keys()
    for name, param in params.items():
        grad = grads[name]
        assert grad.shape == param.shape, f"{name}: {grad.shape} != {param.shape}"
        size = np.linalg.norm(grad)
        noise = rng.standard_normal(param.shape)
        direction = noise / np.linalg.norm(noise) + grad / (size or 1.0)

        def loss_at(step: float, name: str = name, direction: np.ndarray = direction) -> float:
            return float(loss_fn({**params, name: params[name] + step * direction}))

        error = abs(derivative(loss_at) - float((grad * direction).sum())) / (size or 1.0)
        assert error <= tolerance, f"the gradient of {name} is off by {error:.1e}"


def numerical_gradient(f: Callable[[np.ndarray], float], x: np.ndarray) -> np.ndarray:
    """The derivative of f with respect to each coordinate of x, one at a time."""
    gradient = np.zeros_like(x)
    for where in np.ndindex(x.shape):

        def f_at(step: float, where: tuple[int, ...] = where) -> float:
            moved = x.copy()
            moved[where] += step
            return f(moved)

        gradient[where] = derivative(f_at)
    return gradient


def derivative(f: Callable[[float], float], step: float = 1e-3) -> float:
    """f'(0) by central differences of two widths.

    Combined so, the error falls with step⁴ instead of step²: the step can be large enough for
    rounding to do no harm.
    """
    return (8 * (f(step) - f(-step)) - (f(2 * step) - f(-2 * step))) / (12 * step)


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """‖got - want‖ / ‖want‖, or ‖got‖ where want is zero throughout.

    -∞, a masked score, must stand in the same places; else the error is infinite.
    """
    masked = np.isneginf(want)
    if not np.array_equal(np.isneginf(got), masked):
        return float("inf")
    got, want = np.asarray(got)[~masked], np.asarray(want)[~masked]
    return float(np.linalg.norm(got - want)) / (float(np.linalg.norm(want)) or 1.0)
