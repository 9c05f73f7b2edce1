"""The feed-forward network: a naive loop, keys and values, and the gradients."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from npgpt.layers.feed_forward import feed_forward_backward, feed_forward_forward
from npgpt.ops.activation import ACTIVATIONS
from tests.gradcheck import check_gradients

B, T, D, F = 2, 3, 4, 5


def random_weights(rng):
    return tuple(rng.standard_normal(shape) for shape in [(D, F), (F,), (F, D), (D,)])


def test_equals_a_naive_loop(rng) -> None:
    x = rng.standard_normal((B, T, D))
    c_fc, c_fc_bias, c_proj, c_proj_bias = weights = random_weights(rng)
    y, _ = feed_forward_forward(x, *weights, activation="gelu_new")
    for b, t, i in np.ndindex(B, T, D):
        total = c_proj_bias[i]
        for j in range(F):
            u = sum(x[b, t, n] * c_fc[n, j] for n in range(D)) + c_fc_bias[j]
            bent = u / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
            total += bent * c_proj[j, i]
        assert y[b, t, i] == pytest.approx(total, rel=1e-12, abs=1e-13)


def test_each_row_of_the_second_matrix_is_the_answer_of_one_neuron(rng) -> None:
    """Article 8.3: a neuron that fires by a adds a times its row; one at 0 adds nothing."""
    c_fc, _, c_proj, _ = random_weights(rng)
    nothing, no_answer = np.full(F, -1.0), np.zeros(D)
    one_fires = nothing.copy()
    one_fires[3] = 2.5
    x = np.zeros((T, D))
    forward = partial(feed_forward_forward, activation="relu")
    silent, _ = forward(x, c_fc, nothing, c_proj, no_answer)
    answer, _ = forward(x, c_fc, one_fires, c_proj, no_answer)
    assert not silent.any()
    np.testing.assert_allclose(answer, np.tile(2.5 * c_proj[3], (T, 1)), rtol=1e-15)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients(rng, activation) -> None:
    inputs = (rng.standard_normal((B, T, D)), *random_weights(rng))
    check_gradients(feed_forward_forward, feed_forward_backward, inputs, rng, activation=activation)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_float32_stays_float32(rng, activation) -> None:
    x = rng.standard_normal((B, T, D)).astype(np.float32)
    weights = [w.astype(np.float32) for w in random_weights(rng)]
    y, saved = feed_forward_forward(x, *weights, activation=activation)
    grads = feed_forward_backward(y, saved)
    assert {array.dtype for array in (y, *grads)} == {np.dtype(np.float32)}
    assert [grad.shape for grad in grads] == [x.shape, *(w.shape for w in weights)]


def test_a_batch_equals_its_rows(rng) -> None:
    x, dy = rng.standard_normal((2, B, T, D))
    forward, weights = partial(feed_forward_forward, activation="silu"), random_weights(rng)
    y, saved = forward(x, *weights)
    dx, *dweights = feed_forward_backward(dy, saved)
    rows = [forward(row, *weights) for row in x]
    drows = [feed_forward_backward(dy[b], rows[b][1]) for b in range(B)]
    np.testing.assert_allclose(y, [row[0] for row in rows], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(dx, [drow[0] for drow in drows], rtol=1e-12, atol=1e-13)
    for n, dweight in enumerate(dweights, start=1):
        np.testing.assert_allclose(dweight, sum(d[n] for d in drows), rtol=1e-12, atol=1e-13)
