"""The gradient checker lets right gradients pass and catches small errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npgpt.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward
from npgpt.ops.layer_norm import layer_norm_backward, layer_norm_forward
from npgpt.ops.linear import linear_backward, linear_forward
from npgpt.ops.lookup import lookup_backward, lookup_forward
from npgpt.ops.mask import mask_backward, mask_forward
from npgpt.ops.softmax import softmax_backward, softmax_forward
from tests.gradcheck import (
    check_close,
    check_direction,
    check_gradients,
    derivative,
    relative_error,
)

Params = dict[str, np.ndarray]


def linear_a_thousandth_too_large(dy: np.ndarray, saved: Any) -> Any:
    dx, dW, db = linear_backward(dy, saved)
    return dx, 1.001 * dW, db


def linear_one_element_off(dy: np.ndarray, saved: Any) -> Any:
    dx, dW, db = linear_backward(dy, saved)
    dx[1, 2] *= 1.001
    return dx, dW, db


def linear_in_wrong_order(dy: np.ndarray, saved: Any) -> Any:
    dx, dW, db = linear_backward(dy, saved)
    return dx, db, dW


def linear_without_bias(dy: np.ndarray, saved: Any) -> Any:
    return linear_backward(dy, saved)[:2]


def softmax_without_inner_sum(dprobs: np.ndarray, saved: Any) -> np.ndarray:
    probs, _ = saved
    return dprobs * probs


def zeros(dy: np.ndarray, saved: Any) -> np.ndarray:
    """What softmax really gives for a dy of ones."""
    return np.zeros_like(dy)


def layer_norm_without_third_term(dy: np.ndarray, saved: Any) -> Any:
    _, rstd, weight = saved
    g = dy * weight
    _, dweight, dbias = layer_norm_backward(dy, saved)
    return rstd * (g - g.mean(axis=-1, keepdims=True)), dweight, dbias


def lookup_that_overwrites_repeats(dy: np.ndarray, saved: Any) -> np.ndarray:
    ids, shape = saved
    dtable = np.zeros(shape)
    dtable[ids] += dy
    return dtable


def mask_let_through(dy: np.ndarray, saved: Any) -> np.ndarray:
    return dy


def inputs_of(forward: Callable[..., Any]) -> tuple[tuple[np.ndarray, ...], dict[str, Any]]:
    """Random inputs and the settings for the operations of this file."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((5, 4))
    known: dict[Any, tuple[tuple[np.ndarray, ...], dict[str, Any]]] = {
        linear_forward: ((x, rng.standard_normal((4, 3)), rng.standard_normal(3)), {}),
        softmax_forward: ((x,), {"axis": -1}),
        layer_norm_forward: ((x, rng.standard_normal(4), rng.standard_normal(4)), {"eps": 1e-5}),
        lookup_forward: ((np.array([3, 1, 3, 0, 3]), x), {}),
        mask_forward: ((x, np.tri(5, 4, dtype=bool)), {}),
    }
    return known[forward]


@pytest.mark.parametrize(
    ("forward", "right"),
    [
        (linear_forward, linear_backward),
        (softmax_forward, softmax_backward),
        (layer_norm_forward, layer_norm_backward),
        (lookup_forward, lookup_backward),
        (mask_forward, mask_backward),
    ],
)
def test_right_gradients_pass(
    forward: Callable[..., Any], right: Callable[..., Any], rng: np.random.Generator
) -> None:
    inputs, settings = inputs_of(forward)
    check_gradients(forward, right, inputs, rng, **settings)


@pytest.mark.parametrize(
    ("forward", "wrong", "complaint"),
    [
        (linear_forward, linear_a_thousandth_too_large, r"of input 1 is off by 1\.0e-03"),
        (linear_forward, linear_one_element_off, r"of input 0 is off by \d\.\de-0[45]"),
        (linear_forward, linear_in_wrong_order, r"input 1: \(3,\) != \(4, 3\)"),
        (linear_forward, linear_without_bias, "2 gradients for 3 float inputs"),
        (softmax_forward, softmax_without_inner_sum, "of input 0 is off"),
        (softmax_forward, zeros, r"of input 0 is off by 1\.0e\+00"),
        (layer_norm_forward, layer_norm_without_third_term, "of input 0 is off"),
        (lookup_forward, lookup_that_overwrites_repeats, "of input 1 is off"),
        (mask_forward, mask_let_through, "of input 0 is off"),
    ],
)
def test_wrong_gradients_are_caught(
    forward: Callable[..., Any],
    wrong: Callable[..., Any],
    complaint: str,
    rng: np.random.Generator,
) -> None:
    inputs, settings = inputs_of(forward)
    with pytest.raises(AssertionError, match=complaint):
        check_gradients(forward, wrong, inputs, rng, **settings)


def tiny_model(rng: np.random.Generator) -> tuple[Params, Callable[[Params], float], Params]:
    """A table, a LayerNorm and a head: parameters, loss, right gradients."""
    ids, targets = np.array([[3, 0, 3, 1]]), np.array([[0, 3, -100, 4]])
    params = {
        "table": rng.standard_normal((6, 5)),  # rows 2, 4 and 5 are not used
        "gain": rng.standard_normal(5),
        "bias": rng.standard_normal(5),
        "unused": rng.standard_normal((2, 2)),
        "W": 0.01 * rng.standard_normal((5, 5)),
        "b": np.zeros(5),
    }

    def forward(p: Params) -> tuple[float, Any]:
        x, saved_lookup = lookup_forward(ids, p["table"])
        normed, saved_norm = layer_norm_forward(x, p["gain"], p["bias"], eps=1e-5)
        logits, saved_linear = linear_forward(normed, p["W"], p["b"])
        loss, saved_loss = cross_entropy_forward(logits, targets)
        return float(loss), (saved_lookup, saved_norm, saved_linear, saved_loss)

    _, (saved_lookup, saved_norm, saved_linear, saved_loss) = forward(params)
    dnormed, dW, db = linear_backward(cross_entropy_backward(1.0, saved_loss), saved_linear)
    dx, dgain, dbias = layer_norm_backward(dnormed, saved_norm)
    dtable = lookup_backward(dx, saved_lookup)
    grads = {"table": dtable, "gain": dgain, "bias": dbias, "W": dW, "b": db}
    return params, lambda p: forward(p)[0], grads | {"unused": np.zeros((2, 2))}


def test_right_directions_pass(rng: np.random.Generator) -> None:
    params, loss_fn, grads = tiny_model(rng)
    before = {name: param.copy() for name, param in params.items()}
    check_direction(loss_fn, params, grads, rng)
    assert all((params[name] == before[name]).all() for name in params)


@pytest.mark.parametrize("name", ["table", "gain", "bias", "W", "b"])
def test_a_thousandth_in_one_parameter_is_caught_and_named(
    name: str, rng: np.random.Generator
) -> None:
    params, loss_fn, grads = tiny_model(rng)
    with pytest.raises(AssertionError, match=rf"^the gradient of {name} is off by \d\.\de-0[34]"):
        check_direction(loss_fn, params, grads | {name: 1.001 * grads[name]}, rng)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("table", lambda grad: grad + 1e-3 * np.eye(6, 5)),  # one of the rows never looked up
        ("W", lambda grad: grad.T),  # square: no shape tells
        ("W", np.zeros_like),
        ("b", lambda grad: np.concatenate([grad[:1] * 1.001, grad[1:]])),
        ("unused", lambda grad: grad + 1e-3),
    ],
)
def test_other_errors_are_caught_and_named(
    name: str, change: Callable[[np.ndarray], np.ndarray], rng: np.random.Generator
) -> None:
    params, loss_fn, grads = tiny_model(rng)
    with pytest.raises(AssertionError, match=f"^the gradient of {name} is off"):
        check_direction(loss_fn, params, grads | {name: change(grads[name])}, rng)


def test_the_gradient_of_a_keys_bias_is_zero(rng: np.random.Generator) -> None:
    """Up to rounding, which is measured by the gradient of the key's weight."""
    params = {"key.weight": rng.standard_normal(3), "key.bias": rng.standard_normal(3)}
    grads = {"key.weight": 2 * params["key.weight"], "key.bias": np.full(3, 1e-15)}

    def loss_fn(p: Params) -> float:
        return float((p["key.weight"] ** 2).sum())

    check_direction(loss_fn, params, grads, rng)
    for wrong in (np.full(3, 1e-9), np.full(3, np.nan)):
        with pytest.raises(AssertionError, match=r"^the gradient of key\.bias is not zero"):
            check_direction(loss_fn, params, grads | {"key.bias": wrong}, rng)


def test_missing_and_misshapen_gradients_are_caught(rng: np.random.Generator) -> None:
    params, loss_fn, grads = tiny_model(rng)
    with pytest.raises(AssertionError):
        check_direction(loss_fn, params, {"W": grads["W"]}, rng)
    with pytest.raises(AssertionError, match=r"^b: \(1, 5\) != \(5,\)"):
        check_direction(loss_fn, params, grads | {"b": grads["b"][None]}, rng)


def test_derivative_is_exact_up_to_the_fourth_power() -> None:
    assert derivative(lambda x: 7 + 3 * x - 2 * x**2 + 5 * x**3 - x**4) == pytest.approx(
        3, rel=1e-12
    )
    assert derivative(np.exp) == pytest.approx(1, rel=1e-12)


def test_relative_error() -> None:
    assert relative_error(np.array([3.0, 4.1]), np.array([3.0, 4.0])) == pytest.approx(0.02)
    assert relative_error(np.array([0.0, 0.5]), np.zeros(2)) == 0.5
    closed = np.array([-np.inf, 2.0])
    assert relative_error(closed, closed) == 0
    assert relative_error(np.array([0.0, 2.0]), closed) == np.inf
    assert np.isnan(relative_error(np.array([np.nan]), np.ones(1)))
    assert not np.nan <= 1e-10  # so that NaN never passes


VALUES: Params = {
    "loss": np.float64(3.0),
    "ln.weight": np.array([3.0, 4.0]),
    "key.weight": np.array([[300.0, 400.0]]),
    "key.bias": np.array([1e-9]),
}


def test_values_that_agree_pass() -> None:
    check_close(VALUES, VALUES, 0)
    check_close(VALUES | {"ln.weight": np.array([3.0, 4.1])}, VALUES, 0.0201)
    check_close(VALUES | {"key.bias": np.array([-4e-9])}, VALUES, 1.1e-11)
    rough = {name: np.float32(value) for name, value in VALUES.items()}
    check_close(rough, VALUES, 1e-7, np.float32)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("ln.weight", np.array([3.0, 4.1]), r"^ln\.weight is off by 2\.0e-02"),
        ("key.bias", np.array([5.0]), r"^key\.bias is off by 1\.0e-02"),
        ("ln.weight", np.array([3.0, np.nan]), r"^ln\.weight is not finite"),
        ("ln.weight", np.array([3.0, -np.inf]), r"^ln\.weight is not finite"),
        ("ln.weight", np.array([[3.0, 4.0]]), r"^ln\.weight: \(1, 2\) != \(2,\)"),
        ("loss", np.float32(3), "^loss is float32"),
        ("other", np.ones(1), r"^on one side only: \['other'\]"),
    ],
)
def test_values_that_differ_are_named(name: str, value: np.ndarray, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_close({**VALUES, name: value}, VALUES, 1e-3)


def test_a_wanted_value_that_is_not_finite_is_named() -> None:
    with pytest.raises(AssertionError, match=r"^ln\.weight, as it should be, is not finite"):
        check_close(VALUES, VALUES | {"ln.weight": np.array([3.0, np.nan])}, 1e-3)


@pytest.mark.parametrize("side", ["ours", "theirs", "both"])
def test_no_comparison_lets_nan_pass(side: str, rng: np.random.Generator) -> None:
    """Nor hides it behind a larger error; the fixture in conftest.py sees to `assert_allclose`."""
    right, broken = np.array([3.0, 4.0]), np.array([3.0, np.nan])
    got, want = (broken if side in (me, "both") else right for me in ("ours", "theirs"))
    assert not relative_error(got, want) <= np.inf
    with pytest.raises(AssertionError):
        check_close({"a": np.ones(1), "b": got}, {"a": np.full(1, 9.0), "b": want}, np.inf)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(got, want, rtol=1e300)
    with pytest.raises(AssertionError):
        assert got == pytest.approx(want, rel=1e300)


def test_gradients_that_are_nan_on_both_sides_are_no_gradients(rng: np.random.Generator) -> None:
    x = np.array([1.0, np.nan])
    with pytest.raises(AssertionError, match="of input 0 is off by nan"):
        check_gradients(lambda x: (x * x, x), lambda dy, x: 2 * x * dy, (x,), rng)
    with pytest.raises(AssertionError, match="the gradient of a is off by nan"):
        check_direction(lambda p: float((p["a"] ** 2).sum()), {"a": x}, {"a": 2 * x}, rng)
