"""The KV cache: prefill, decoding and one full forward pass give the same logits."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.decoding.kv_cache import KVCache
from tests.builders.gpt2 import random_gpt2
from tests.gradcheck import relative_error

V, T = 19, 11


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 2e-6)])
@pytest.mark.parametrize("steps", [[1] * T, [7, 1, 1, 1, 1], [4, 5, 2], [T]])
def test_reading_a_text_in_pieces_equals_reading_it_at_once(rng, steps, dtype, tolerance) -> None:
    model, ids = random_gpt2(rng, dtype, extreme=True), rng.integers(0, V, (3, T))
    kv = model.new_kv_cache((3,))
    pieces = np.split(ids, np.cumsum(steps)[:-1], axis=1)
    logits = np.concatenate([model(piece, kv=kv) for piece in pieces], axis=1)
    assert logits.dtype == dtype
    assert kv.length == T
    assert relative_error(logits, model(ids)) < tolerance


def test_a_padded_text_in_pieces(rng) -> None:
    model, ids = random_gpt2(rng), rng.integers(0, V, (2, 9))
    attention_mask = np.array([[1] * 9, [0] * 3 + [1] * 6])
    kv = model.new_kv_cache((2,))
    start = model(ids[:, :5], attention_mask[:, :5], kv)
    middle = model(ids[:, 5:8], attention_mask[:, :8], kv)
    end = model(ids[:, 8:], attention_mask, kv)
    logits = np.concatenate([start, middle, end], axis=1)
    assert relative_error(logits, model(ids, attention_mask)) < 1e-13
    assert relative_error(logits[1, 3:], model(ids[1, 3:])) < 1e-13


def test_forward_with_a_cache_shows_the_whole_weight_table(rng) -> None:
    model, ids = random_gpt2(rng), rng.integers(0, V, 6)
    kv = model.new_kv_cache()
    model(ids[:4], kv=kv)
    logits, saved = model.forward(ids[4:], kv=kv)
    whole, saved_whole = model.forward(ids)
    np.testing.assert_allclose(logits, whole[4:], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(
        saved.blocks[1].attn.probs, saved_whole.blocks[1].attn.probs[:, 4:], rtol=1e-12, atol=1e-15
    )


def test_it_holds_layers_x_2_x_T_x_d_numbers_whatever_the_heads(rng) -> None:
    for n_head in (1, 3, 12):
        kv = random_gpt2(rng, np.float32, n_head=n_head).new_kv_cache()
        assert kv.nbytes == 4 * (2 * 2 * T * 12)
        assert kv.capacity == T
    assert random_gpt2(rng, np.float64).new_kv_cache((5,), 7).nbytes == 8 * 5 * (2 * 2 * 7 * 12)


def test_the_keys_of_all_blocks_count_only_once_all_have_written(rng) -> None:
    kv = KVCache(2, (3, 4, 5), np.dtype(np.float32))
    k, v = rng.standard_normal((2, 3, 1, 5)).astype(np.float32)
    keys, values = kv.extend(1, k, v)
    assert kv.length == 0
    np.testing.assert_array_equal(keys, k)
    np.testing.assert_array_equal(values, v)
    kv.advance(1)
    keys, values = kv.extend(1, 2 * k, 3 * v)
    np.testing.assert_array_equal(keys, np.concatenate([k, 2 * k], axis=-2))
    np.testing.assert_array_equal(values, np.concatenate([v, 3 * v], axis=-2))
    assert np.shares_memory(keys, kv.keys[1])


@pytest.mark.parametrize("T", [1, 3])
def test_a_full_cache_says_so(rng, T) -> None:
    model = random_gpt2(rng)
    kv = model.new_kv_cache(capacity=4)
    model([1, 2, 3, 4], kv=kv)
    with pytest.raises(ValueError, match=f"room for 4 positions, but {4 + T} are needed"):
        model([5] * T, kv=kv)
    assert kv.length == 4


def test_the_context_counts_cached_tokens_too(rng) -> None:
    model = random_gpt2(rng)
    kv = model.new_kv_cache(capacity=20)
    model([0] * T, kv=kv)
    with pytest.raises(ValueError, match="12 tokens long, but the model has positions for 11"):
        model([0], kv=kv)


def test_the_attention_mask_covers_cached_tokens_too(rng) -> None:
    model = random_gpt2(rng)
    kv = model.new_kv_cache()
    model([1, 2], kv=kv)
    with pytest.raises(ValueError, match=r"attention_mask has shape \[1\], but .* want \[3\]"):
        model([3], [1], kv)
