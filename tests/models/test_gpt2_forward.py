"""GPT-2's forward pass: its stations, what is kept of it, and what may look at what."""

from __future__ import annotations

import tracemalloc

import numpy as np

from npgpt.models.gpt2.model import GPT2
from npgpt.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward
from tests.builders.gpt2 import random_gpt2

B, T, V = 3, 7, 19


def test_float32_stays_float32(rng) -> None:
    model = random_gpt2(rng, np.float32, embd_pdrop=0.1, attn_pdrop=0.1, resid_pdrop=0.1)
    ids, targets = rng.integers(0, V, (2, B, T))
    seen: dict[str, np.ndarray] = {}
    logits, saved = model.forward(ids, rng=rng, observe=seen.__setitem__)
    loss, saved_loss = cross_entropy_forward(logits, targets)
    grads = model.backward(cross_entropy_backward(1.0, saved_loss), saved)
    arrays = [*seen.values(), *grads.values(), *float_arrays(saved)]
    assert len(arrays) > 60
    assert {np.dtype(loss.dtype), *(array.dtype for array in arrays)} == {np.dtype(np.float32)}
    assert [grad.shape for grad in grads.values()] == [p.shape for p in model.params.values()]


def float_arrays(saved):
    """Every floating array somewhere in `saved`."""
    if isinstance(saved, np.ndarray):
        return [saved] if np.issubdtype(saved.dtype, np.floating) else []
    parts = saved if isinstance(saved, (tuple, list)) else []
    return [array for part in parts for array in float_arrays(part)]


def test_nothing_that_is_given_changes(rng) -> None:
    model = random_gpt2(rng)
    ids, targets = rng.integers(0, V, (2, B, T))
    attention_mask = np.ones_like(ids)
    given = {**model.params, "ids": ids, "targets": targets, "attention_mask": attention_mask}
    before = {name: array.copy() for name, array in given.items()}
    logits, saved = model.forward(ids, attention_mask)
    dlogits = rng.standard_normal(logits.shape)
    kept = dlogits.copy()
    first, again = model.backward(dlogits, saved), model.backward(dlogits, saved)
    model.loss_and_grads(ids, targets, attention_mask)
    for name, array in given.items():
        np.testing.assert_array_equal(array, before[name])
    np.testing.assert_array_equal(dlogits, kept)
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])


def test_inference_keeps_nothing(rng) -> None:
    """Its memory is that of one block, however many there are; that of training grows."""

    def peak(n_layer, run):
        model = random_gpt2(rng, n_layer=n_layer, n_positions=64)
        tracemalloc.start()
        run(model, np.zeros(64, int))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak(12, GPT2.__call__) < 1.1 * peak(1, GPT2.__call__)
    assert peak(12, GPT2.forward) > 6 * peak(1, GPT2.forward)


def test_stations_of_the_forward_pass(rng) -> None:
    model, ids = random_gpt2(rng), rng.integers(0, V, T)
    seen: dict[str, np.ndarray] = {}
    logits, saved = model.forward(ids, observe=seen.__setitem__)
    p = model.params
    np.testing.assert_array_equal(seen["embed"], p["wte.weight"][ids] + p["wpe.weight"][:T])
    trunk = seen["embed"] + seen["h.0.attn"] + seen["h.0.mlp"]
    np.testing.assert_allclose(seen["h.0"], trunk, rtol=1e-13)
    np.testing.assert_allclose(
        seen["h.1"], trunk + seen["h.1.attn"] + seen["h.1.mlp"], rtol=1e-12, atol=1e-13
    )
    np.testing.assert_allclose(logits, seen["ln_f"] @ p["wte.weight"].T, rtol=1e-12, atol=1e-13)
    assert seen["h.1.attn.probs"] is saved.blocks[1].attn.probs


def test_weight_tables_are_lower_triangular_and_their_rows_sum_to_1(rng) -> None:
    _, saved = random_gpt2(rng).forward(rng.integers(0, V, (B, T)))
    for block in saved.blocks:
        assert block.attn.probs.shape == (B, 3, T, T)
        np.testing.assert_allclose(block.attn.probs.sum(axis=-1), 1, rtol=1e-13)
        assert not np.triu(block.attn.probs, 1).any()
        assert (np.tril(block.attn.probs) > 0).sum() == B * 3 * T * (T + 1) / 2


def test_a_later_token_leaves_earlier_logits_alone(rng) -> None:
    model, ids = random_gpt2(rng), rng.integers(0, V, (B, T))
    changed = ids.copy()
    changed[:, 4] = (ids[:, 4] + 1) % V
    before, after = model(ids), model(changed)
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert (np.abs(before[:, 4:] - after[:, 4:]).max(axis=-1) > 1e-3).all()


def test_only_attention_carries_information_between_tokens(rng) -> None:
    """Without what attention adds, each token's logits depend on itself alone (article 1)."""
    model, ids = random_gpt2(rng), rng.integers(0, V, T)
    for n in range(2):
        model.params[f"h.{n}.attn.c_proj.weight"][...] = 0
    changed = ids.copy()
    changed[2] = (ids[2] + 1) % V
    moved = np.abs(model(ids) - model(changed)).max(axis=-1) > 0
    assert moved.tolist() == [t == 2 for t in range(T)]
