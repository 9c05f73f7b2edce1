"""Attention in tiles equals the six steps under every mask, and needs memory for T, not for T²."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from npgpt.layers.attention import attention_backward, attention_forward
from npgpt.ops import flash_attention, threads
from npgpt.ops.flash_attention import flash_attention_backward, flash_attention_forward
from npgpt.ops.mask import attention_mask_for, causal_mask, padding_mask

B, H, D_H = 3, 2, 5


def masks(rng, T, S):
    """Name -> mask: causal, with padding on either side, of a few keys, of none."""
    padding = rng.random((B, S)) < 0.4
    padding[:, :9], padding[0] = False, True
    left = np.zeros((B, S), bool)
    left[:, S // 2 :] = True
    return {
        "causal": causal_mask(T, S),
        "window": causal_mask(T, S, 7),
        "window and holes": attention_mask_for(T, S, padding, 7),
        "everything": np.ones((T, S), bool),
        "holes": attention_mask_for(T, S, padding),
        "left padding": attention_mask_for(T, S, left),
        "padding alone": padding_mask(padding),
        "each head its own": rng.random((B, H, T, S)) < 0.1,
        "nothing": np.zeros((T, S), bool),
    }


NAMES = list(masks(np.random.default_rng(0), 9, 11))


@pytest.mark.parametrize("in_threads", [False, True])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("T", "S"), [(1, 40), (37, 37), (20, 50), (50, 20)])
def test_equals_the_six_steps(rng, monkeypatch, T, S, name, in_threads) -> None:
    if in_threads:
        monkeypatch.setattr(threads, "OPENBLAS_RESTS", True)
        monkeypatch.setattr(flash_attention, "thread_count", lambda: 2)  # heads are cut apart
        monkeypatch.setattr(flash_attention, "MANY", 0)
    monkeypatch.setattr(flash_attention, "ROWS", 8)
    monkeypatch.setattr(flash_attention, "KEYS", 12)
    q, k, v = (rng.standard_normal((B, H, n, D_H)) for n in (T, S, S))
    settings = {"divisor": 0.7, "mask": masks(rng, T, S)[name]}
    wanted, saved = attention_forward(q, 3 * k, v, **settings)
    found, saved_flash = flash_attention_forward(q, 3 * k, v, **settings)
    dcontext = rng.standard_normal(wanted.shape)
    assert np.any(wanted) == (name != "nothing")
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)
    pairs = zip(
        flash_attention_backward(dcontext, saved_flash),
        attention_backward(dcontext, saved),
        strict=True,
    )
    for grad, wanted_grad in pairs:
        np.testing.assert_allclose(grad, wanted_grad, rtol=0, atol=2e-12)


def test_heads_a_few_at_a_time(rng, monkeypatch) -> None:
    q, k, v, dcontext = rng.standard_normal((4, B, 5, 9, D_H))
    results = []
    for heads in (5, 2):
        monkeypatch.setattr(flash_attention, "CACHED", heads * 9 * 9)
        context, saved = flash_attention_forward(q, k, v, divisor=0.7, mask=causal_mask(9, 9))
        results.append([context, *flash_attention_backward(dcontext, saved)])
    np.testing.assert_array_equal(results[0], results[1])


def test_scores_far_below_and_far_above_zero(rng, monkeypatch) -> None:
    """A running maximum that started at 0 would lose the first row, and one without the second."""
    monkeypatch.setattr(flash_attention, "KEYS", 2)
    k = np.array([[0.0], [0.0], [-1000.0], [-1001.0], [1000.0], [1001.0]])
    v = rng.standard_normal((6, 3))
    mask = np.array([[0, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], bool)
    q = np.ones((2, 1))
    context, _ = flash_attention_forward(q, k, v, divisor=1.0, mask=mask)
    near, far = 1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))
    wanted = [near * v[2] + far * v[3], far * v[4] + near * v[5]]
    np.testing.assert_allclose(context, wanted, rtol=1e-14)


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_memory_grows_with_the_text_not_with_its_square(rng, way) -> None:
    peaks = []
    for T in (1024, 2048, 4096):
        q, k, v, dcontext = rng.standard_normal((4, T, 8)).astype(np.float32)
        mask = causal_mask(T, T)
        tracemalloc.start()
        _, saved = flash_attention_forward(q, k, v, divisor=3.0, mask=mask)
        if way == "backward":
            tracemalloc.reset_peak()
            flash_attention_backward(dcontext, saved)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] - peaks[1] < 2.2 * (peaks[1] - peaks[0])
    assert peaks[2] < 4096 * 4096  # less than a byte a score


@pytest.mark.parametrize("lead", [(), (H,), (B, H)], ids=str)
def test_one_row_of_a_mask_serves_every_query(rng, lead) -> None:
    """A mask of [1, S], or [S], also without heads."""
    q, k, v, dcontext = (rng.standard_normal((*lead, n, D_H)) for n in (6, 9, 9, 6))
    for mask in (np.arange(9)[None] % 4 != 1, np.arange(9) > 3):
        wanted, saved = attention_forward(q, k, v, divisor=0.7, mask=mask)
        found, saved_flash = flash_attention_forward(q, k, v, divisor=0.7, mask=mask)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)
        grads = flash_attention_backward(dcontext, saved_flash)
        for grad, want in zip(grads, attention_backward(dcontext, saved), strict=True):
            np.testing.assert_allclose(grad, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("lead", "T", "shares"),
    [((12,), 1024, [3, 3, 3, 3]), ((2, 12), 1024, [4] * 6), ((3, 3), 1024, [2, 1] * 3)],
    ids=str,
)
def test_threads_get_equal_shares_of_the_heads(monkeypatch, lead, T, shares) -> None:
    """Four heads' tiles fit the cache, but three shares of four heads leave one thread idle."""
    monkeypatch.setattr(flash_attention, "thread_count", lambda: 2)
    seen = []
    monkeypatch.setattr(flash_attention, "parallel_blas", lambda _, parts: seen.extend(parts))
    q = np.zeros((*lead, T, 1), np.float32)
    flash_attention._each_part(lambda _: None, q, q)
    assert [len(range(*part[-1].indices(lead[-1]))) for part in seen] == shares
