"""Check hand-written gradients against central differences, in float64, and arrays by name.

`check_gradients` looks at every coordinate of one operation; `check_direction` at one direction
for each parameter of a whole model. Leaves out points where a function has a kink (ReLU at 0).
`check_close` compares what two implementations computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    grads = tuple(grad for grad in grads if grad is not None)  # of a parameter that is not there
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
        tolerance: largest |slope - predicted slope| / `size_of` allowed, for each parameter.
    """
    assert grads.keys() == params.keys()
    for name, param in params.items():
        grad = grads[name]
        assert grad.shape == param.shape, f"{name}: {grad.shape} != {param.shape}"
        size = size_of(name, grads)
        if is_key_bias(name):
            assert np.linalg.norm(grad) <= 1e-13 * size, f"the gradient of {name} is not zero"
        noise = rng.standard_normal(param.shape)
        direction = noise / np.linalg.norm(noise) + grad / (np.linalg.norm(grad) or 1.0)

        def loss_at(step: float, name: str = name, direction: np.ndarray = direction) -> float:
            return float(loss_fn({**params, name: params[name] + step * direction}))

        error = abs(derivative(loss_at) - float((grad * direction).sum())) / size
        assert error <= tolerance, f"the gradient of {name} is off by {error:.1e}"


def check_close(
    got: Mapping[str, Any], want: Mapping[str, Any], tolerance: float, dtype: Any = None
) -> None:
    """Assert that two implementations computed the same; the error names the worst array.

    Args:
        got, want: finite arrays of the same names and shapes.
        tolerance: largest ‖got - want‖ / `size_of` allowed, for each array.
        dtype: that of every array of `got`; None: that of its counterpart.
    """
    assert got.keys() == want.keys(), f"on one side only: {sorted(got.keys() ^ want.keys())}"
    errors = {}
    for name in want:
        ours, theirs = np.asarray(got[name]), np.asarray(want[name])
        assert ours.shape == theirs.shape, f"{name}: {ours.shape} != {theirs.shape}"
        assert ours.dtype == (dtype or theirs.dtype), f"{name} is {ours.dtype}"
        assert np.isfinite(ours).all(), f"{name} is not finite"
        assert np.isfinite(theirs).all(), f"{name}, as it should be, is not finite"
        errors[name] = float(np.linalg.norm(ours - theirs)) / size_of(name, want)
    worst = max(errors, key=lambda name: errors[name])
    assert errors[worst] <= tolerance, f"{worst} is off by {errors[worst]:.1e}"


def is_key_bias(name: str) -> bool:
    """A key's bias shifts all scores of a row alike: its gradient is zero, up to rounding.

    Not if the keys are turned by their positions, as in a Llama (`layers.N…`).
    """
    return name.endswith(("key.bias", "k_proj.bias", "k_lin.bias")) and not name.startswith(
        "layers."
    )


def size_of(name: str, arrays: Mapping[str, Any]) -> float:
    """What an error of this array is measured by: its norm, or that of the key's weight."""
    measure = name.removesuffix("bias") + "weight" if is_key_bias(name) else name
    return float(np.linalg.norm(arrays[measure])) or 1.0


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
