"""Attention: the article's numbers, a naive loop, what heads are, and the gradients."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from npgpt.layers.attention import AttentionSaved, attention_backward, attention_forward
from npgpt.layers.self_attention import self_attention_backward, self_attention_forward
from npgpt.ops.mask import attention_mask_for, causal_mask
from tests.gradcheck import check_gradients

B, T, S, H, D_H = 2, 3, 5, 4, 6
D = H * D_H

# The toy model of article 7.3: d = 4, one head.
X = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]], np.float64)
W_Q = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]], np.float64)
W_K = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]], np.float64)
W_V = np.eye(4)
TOY = (np.hstack([W_Q, W_K, W_V]), np.zeros(12), np.eye(4), np.zeros(4))


def random_weights(rng, d=D):
    shapes = [(d, 3 * d), (3 * d,), (d, d), (d,)]
    return tuple(rng.standard_normal(shape) / math.sqrt(d) for shape in shapes)


def test_the_six_steps_give_the_numbers_of_article_7_3() -> None:
    out, saved = self_attention_forward(X, *TOY, n_head=1, divisor=2.0, mask=causal_mask(3, 3))
    assert isinstance(saved.heads, AttentionSaved)
    q, k = (array[0] for array in saved.heads.scores)
    scaled = q @ k.T / saved.heads.scale
    assert q.tolist() == [[2, 0, 1, 0], [0, 2, 0, 1], [1, 1, 0, 0]]
    assert k.tolist() == [[1, 0, 2, 0], [0, 1, 0, 2], [1, 1, 1, 1]]
    assert (q @ k.T).tolist() == [[4, 0, 3], [0, 4, 3], [1, 1, 2]]
    assert scaled.tolist() == [[2, 0, 1.5], [0, 2, 1.5], [0.5, 0.5, 1]]
    assert saved.probs[0].round(2).tolist() == [[1, 0, 0], [0.12, 0.88, 0], [0.27, 0.27, 0.45]]
    assert out.round(2).tolist() == [
        [1, 0, 1, 0],
        [0.12, 0.88, 0.12, 0.88],
        [0.73, 0.73, 0.27, 0.27],
    ]


def test_without_mask_a_new_order_only_moves_the_outputs() -> None:
    """Article chapter 6: attention alone does not know the order of its tokens."""
    order = [2, 0, 1]
    everything = np.ones((3, 3), bool)
    out, _ = self_attention_forward(X, *TOY, n_head=1, divisor=2.0, mask=everything)
    moved, _ = self_attention_forward(X[order], *TOY, n_head=1, divisor=2.0, mask=everything)
    assert out.round(2).tolist() == [
        [0.92, 0.43, 0.57, 0.08],
        [0.43, 0.92, 0.08, 0.57],
        [0.73, 0.73, 0.27, 0.27],
    ]
    np.testing.assert_allclose(moved, out[order], rtol=0, atol=1e-15)
    mask = causal_mask(3, 3)
    causal, _ = self_attention_forward(X[order], *TOY, n_head=1, divisor=2.0, mask=mask)
    assert np.abs(causal - out[order]).max() > 0.1  # the mask does know it


def test_equals_a_naive_loop(rng) -> None:
    x = rng.standard_normal((T, D))
    c_attn, c_attn_bias, c_proj, c_proj_bias = weights = random_weights(rng)
    y, _ = self_attention_forward(x, *weights, n_head=H, divisor=1.7, mask=causal_mask(T, T))
    for i in range(T):
        merged = np.zeros(D)
        for h in range(H):
            columns = [part * D + h * D_H + np.arange(D_H) for part in range(3)]  # of W_Q, W_K, W_V
            q, k, v = (x @ c_attn[:, c] + c_attn_bias[c] for c in columns)
            weight = [math.exp(q[i] @ k[j] / 1.7) for j in range(i + 1)]
            for j in range(i + 1):
                merged[h * D_H : (h + 1) * D_H] += weight[j] / sum(weight) * v[j]
        np.testing.assert_allclose(y[i], merged @ c_proj + c_proj_bias, rtol=1e-12, atol=1e-13)


def test_heads_are_separate_projections_of_the_whole_input(rng) -> None:
    """Article 7.6: cutting W_Q's columns into H equals H matrices [d, d_h]."""
    x = rng.standard_normal((B, T, D))
    c_attn, c_attn_bias, c_proj, c_proj_bias = weights = random_weights(rng)
    divisor, mask = math.sqrt(D_H), causal_mask(T, T)
    y, _ = self_attention_forward(x, *weights, n_head=H, divisor=divisor, mask=mask)
    W_Q, W_K, W_V = (np.split(W, H, axis=1) for W in np.split(c_attn, 3, axis=1))
    b_Q, b_K, b_V = (np.split(b, H) for b in np.split(c_attn_bias, 3))
    heads = []
    for h in range(H):
        q, k, v = x @ W_Q[h] + b_Q[h], x @ W_K[h] + b_K[h], x @ W_V[h] + b_V[h]
        heads.append(attention_forward(q, k, v, divisor=divisor, mask=mask)[0])
    separate = np.concatenate(heads, axis=-1) @ c_proj + c_proj_bias
    np.testing.assert_allclose(y, separate, rtol=1e-12, atol=1e-13)


def test_one_heads_value_and_output_matrix_fold_into_one(rng) -> None:
    x = rng.standard_normal((T, D))
    c_attn, _, c_proj, c_proj_bias = random_weights(rng)
    no_bias = np.zeros(3 * D)
    folded = np.concatenate([c_attn[:, : 2 * D], c_attn[:, 2 * D :] @ c_proj], axis=1)
    forward = partial(
        self_attention_forward, n_head=1, divisor=math.sqrt(D), mask=causal_mask(T, T)
    )
    y, _ = forward(x, c_attn, no_bias, c_proj, c_proj_bias)
    y_folded, _ = forward(x, folded, no_bias, np.eye(D), c_proj_bias)
    np.testing.assert_allclose(y_folded, y, rtol=1e-12, atol=1e-13)


def test_new_tokens_behind_remembered_keys_equal_the_whole_text(rng) -> None:
    x, weights = rng.standard_normal((B, S, D)), random_weights(rng)
    forward = partial(self_attention_forward, n_head=H, divisor=math.sqrt(D_H))
    remembered = [np.zeros((B, H, 0, D_H))] * 2

    def extend_kv(k, v):
        remembered[:] = (
            np.concatenate(pair, axis=-2) for pair in zip(remembered, (k, v), strict=True)
        )
        return tuple(remembered)

    whole, _ = forward(x, *weights, mask=causal_mask(S, S))
    parts = []
    for start, end in [(0, 2), (2, 3), (3, S)]:
        mask = causal_mask(end - start, end)
        parts.append(forward(x[:, start:end], *weights, mask=mask, extend_kv=extend_kv)[0])
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, rtol=1e-12, atol=1e-13)


def test_a_query_that_may_look_nowhere_gives_zeros(rng) -> None:
    q, k, v = (rng.standard_normal((1, 2, 3, D_H)) for _ in range(3))
    mask = attention_mask_for(3, 3, np.array([[0, 1, 1]]))
    context, saved = attention_forward(q, k, v, divisor=2.0, mask=mask)
    grads = attention_backward(np.ones_like(context), saved)
    assert not context[:, :, 0].any()
    assert context[:, :, 1:].all()
    assert all(np.isfinite(grad).all() and not grad[:, :, 0].any() for grad in grads)


@pytest.mark.parametrize("pdrop", [0.0, 0.3])
def test_attention_gradients(rng, pdrop) -> None:
    inputs = tuple(rng.standard_normal((B, H, n, D_H)) for n in (T, S, S))

    def forward(q, k, v):
        return attention_forward(
            q, k, v, divisor=1.5, mask=causal_mask(T, S), pdrop=pdrop, rng=np.random.default_rng(8)
        )

    check_gradients(forward, attention_backward, inputs, rng)


@pytest.mark.parametrize(("pdrop", "flash"), [(0.0, False), (0.3, False), (0.0, True)])
def test_self_attention_gradients(rng, pdrop, flash) -> None:
    d, mask = 6, attention_mask_for(T, T, np.array([[1, 1, 1], [0, 1, 1]]))

    def forward(*inputs):
        rng = np.random.default_rng(8)
        return self_attention_forward(
            *inputs, n_head=2, divisor=1.5, mask=mask, pdrop=pdrop, rng=rng, flash=flash
        )

    inputs = (rng.standard_normal((B, T, d)), *random_weights(rng, d))
    check_gradients(forward, self_attention_backward, inputs, rng)


def test_float32_stays_float32(rng) -> None:
    x = rng.standard_normal((B, T, D)).astype(np.float32)
    weights = [w.astype(np.float32) for w in random_weights(rng)]
    y, saved = self_attention_forward(
        x, *weights, n_head=H, divisor=math.sqrt(D_H), mask=causal_mask(T, T), pdrop=0.1, rng=rng
    )
    grads = self_attention_backward(y, saved)
    assert {array.dtype for array in (y, saved.probs, *grads)} == {np.dtype(np.float32)}
    assert [grad.shape for grad in grads] == [x.shape, *(w.shape for w in weights)]


def test_a_batch_equals_its_rows(rng) -> None:
    x, dy = rng.standard_normal((2, B, T, D))
    forward = partial(self_attention_forward, n_head=H, divisor=1.5, mask=causal_mask(T, T))
    weights = random_weights(rng)
    y, saved = forward(x, *weights)
    dx, *dweights = self_attention_backward(dy, saved)
    rows = [forward(row, *weights) for row in x]
    drows = [self_attention_backward(dy[b], rows[b][1]) for b in range(B)]
    np.testing.assert_allclose(y, [row[0] for row in rows], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(dx, [drow[0] for drow in drows], rtol=1e-12, atol=1e-13)
    for n, dweight in enumerate(dweights, start=1):
        np.testing.assert_allclose(dweight, sum(d[n] for d in drows), rtol=1e-12, atol=1e-13)


def test_flash_changes_the_way_but_not_the_result(rng) -> None:
    x, weights = rng.standard_normal((B, T, D)), random_weights(rng)
    forward = partial(self_attention_forward, n_head=H, divisor=1.5, mask=causal_mask(T, T))
    y, saved = forward(x, *weights)
    y_flash, saved_flash = forward(x, *weights, flash=True)
    np.testing.assert_allclose(y_flash, y, rtol=1e-12, atol=1e-13)
    assert saved.probs.shape == (B, H, T, T)
    with pytest.raises(AttributeError, match="a pass with flash=True keeps no weight tables"):
        _ = saved_flash.probs
    _, saved_flash = forward(x, *weights, pdrop=0.3, flash=True)  # in inference nothing is dropped
    assert not isinstance(saved_flash.heads, AttentionSaved)
    six, one = (
        forward(x, *weights, pdrop=0.3, rng=np.random.default_rng(3), flash=flash)[0]
        for flash in (False, True)
    )
    assert np.array_equal(six, one)  # dropout of the weights needs the weights
    assert not np.allclose(six, y)
