"""Llama: the gradients of every parameter, and one text read in several ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npgpt.models.llama.config import LlamaConfig, init_params, param_shapes
from npgpt.models.llama.model import Llama
from npgpt.ops.cross_entropy import cross_entropy_forward
from tests.builders.llama import random_llama, tiny_llama_config
from tests.gradcheck import check_direction

B, T, V = 3, 7, 19
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 0.1,
    "high_freq_factor": 1.0,
    "original_max_position_embeddings": 8,
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"tie_word_embeddings": True, "num_key_value_heads": 1, "rope_scaling": LLAMA3},
    {"num_key_value_heads": 6, "hidden_act": "gelu", "rms_norm_eps": 1e-2},
    {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": 5},
]


def random_batch(rng):
    ids, targets = rng.integers(0, V, (2, B, T))
    targets[0, 2:4] = -100
    return ids, targets


@pytest.mark.parametrize("options", OPTIONS)
def test_every_gradient_predicts_the_change_of_the_loss(rng, options) -> None:
    model = random_llama(rng, **options)
    ids, targets = random_batch(rng)
    attention_mask = np.ones((B, T), int)
    attention_mask[2, :2] = 0
    targets[2, :2] = -100
    _, grads = model.loss_and_grads(ids, targets, attention_mask)

    def loss_fn(params):
        logits = Llama(model.config, params)(ids, attention_mask)
        return float(cross_entropy_forward(logits, targets)[0])

    check_direction(loss_fn, model.params, grads, rng)
    assert list(grads) == list(model.params)


def test_gradients_through_dropout(rng) -> None:
    """The same generator draws the same masks, so the loss is a smooth function again."""
    model = random_llama(rng, attention_dropout=0.3)
    ids, targets = random_batch(rng)
    _, grads = model.loss_and_grads(ids, targets, rng=np.random.default_rng(3))

    def loss_fn(params):
        logits, _ = Llama(model.config, params).forward(ids, rng=np.random.default_rng(3))
        return float(cross_entropy_forward(logits, targets)[0])

    check_direction(loss_fn, model.params, grads, rng)
    assert np.abs(model.forward(ids, rng=np.random.default_rng(3)).logits - model(ids)).max() > 1e-3


def read_in_steps(model, ids, attention_mask, steps) -> np.ndarray:
    """The logits of a batch that is read in pieces of these lengths, with a cache."""
    kv, begin, parts = model.new_kv_cache((len(ids),), sum(steps)), 0, []
    for step in steps:
        end = begin + step
        parts.append(model(ids[:, begin:end], attention_mask[:, :end], kv))
        begin = end
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("options", OPTIONS[:3])
@pytest.mark.parametrize("steps", [[7], [4, 1, 1, 1], [1, 3, 3]], ids=str)
def test_cached_is_uncached(rng, options, steps) -> None:
    model = random_llama(rng, **options)
    ids, attention_mask = rng.integers(0, V, (B, T)), np.ones((B, T), int)
    attention_mask[1, :3] = 0
    want = model(ids, attention_mask)
    got = read_in_steps(model, ids, attention_mask, steps)
    real = attention_mask == 1
    np.testing.assert_allclose(got[real], want[real], rtol=1e-11)


def test_the_cache_keeps_the_shared_heads_only(rng) -> None:
    kv = random_llama(rng, np.float32).new_kv_cache((B,), T)
    layers, both, shared_heads, d_h, each = 2, 2, 3, 4, 4
    assert kv.nbytes == layers * both * B * shared_heads * T * d_h * each


@pytest.mark.parametrize("flash", [False, True])
def test_weight_tables_or_tiles(rng, flash) -> None:
    model, ids = random_llama(rng), rng.integers(0, V, (B, T))
    seen: dict[str, np.ndarray] = {}
    logits, saved = model.forward(ids, observe=seen.__setitem__, flash=flash)
    np.testing.assert_allclose(logits, model(ids), rtol=1e-11)
    names = ["self_attn.probs", "self_attn", "mlp"]
    blocks = [f"layers.{n}{'.' * bool(s)}{s}" for n in range(2) for s in (*names[flash:], "")]
    wanted = ["embed", *blocks, "norm", "logits"]
    assert [name for name in seen if name in wanted] == wanted
    assert flash != ("layers.0.self_attn.probs" in seen)
    if not flash:
        probs = saved.blocks[1].self_attn.probs
        assert probs.shape == (B, 6, T, T)
        np.testing.assert_allclose(probs.sum(axis=-1), 1, rtol=1e-12)
        assert not np.triu(probs, 1).any()


def test_what_comes_later_changes_nothing_before(rng) -> None:
    model, ids = random_llama(rng), rng.integers(0, V, T)
    changed = ids.copy()
    changed[4] = (ids[4] + 1) % V
    before, after = model(ids), model(changed)
    np.testing.assert_array_equal(before[:4], after[:4])
    assert (np.abs(before[4:] - after[4:]).max(axis=-1) > 1e-6).all()


def test_padding_on_either_side_changes_nothing(rng) -> None:
    model, ids = random_llama(rng), rng.integers(0, V, 5)
    want = model(ids)
    left = model([[0, 1, *ids]], [[0, 0, 1, 1, 1, 1, 1]])[0, 2:]
    right = model([[*ids, 3]], [[1, 1, 1, 1, 1, 0]])[0, :5]
    np.testing.assert_allclose(left, want, rtol=1e-11)
    np.testing.assert_allclose(right, want, rtol=1e-11)


def test_only_distances_count(rng) -> None:
    """All positions moved by the same number: the padding in front is not left out of them here."""
    model, ids = random_llama(rng), rng.integers(0, V, 5)
    kv = model.new_kv_cache(capacity=8)
    model([1, 2, 3], kv=kv)  # three positions that nobody will look at
    shifted = model(ids, [0, 0, 0, 1, 1, 1, 1, 1], kv)
    np.testing.assert_allclose(shifted, model(ids), rtol=1e-11)
    order = model(ids[::-1].copy())
    assert np.abs(order[-1] - model(ids)[-1]).max() > 1e-3


def test_float32_stays_float32(rng) -> None:
    model = random_llama(rng, np.float32)
    ids, targets = random_batch(rng)
    loss, grads = model.loss_and_grads(ids, targets)
    dtypes = {np.asarray(array).dtype for array in (loss, model(ids), *grads.values())}
    assert dtypes == {np.dtype(np.float32)}


def test_a_tied_table_gets_both_contributions(rng) -> None:
    tied = random_llama(rng, tie_word_embeddings=True)
    ids, targets = random_batch(rng)
    copied = {**tied.params, "lm_head.weight": tied.params["embed_tokens.weight"]}
    untied = Llama(tiny_llama_config(), copied)
    loss, grads = tied.loss_and_grads(ids, targets)
    untied_loss, untied_grads = untied.loss_and_grads(ids, targets)
    assert loss == untied_loss
    both = untied_grads["embed_tokens.weight"] + untied_grads["lm_head.weight"]
    np.testing.assert_allclose(grads["embed_tokens.weight"], both, rtol=1e-12, atol=1e-15)


def test_dynamic_angles_beyond_the_trained_length_need_the_whole_text(rng) -> None:
    model = random_llama(rng, **OPTIONS[3])
    assert model.context == 10
    kv = model.new_kv_cache()
    model([1, 2, 3, 4, 5], kv=kv)
    with pytest.raises(ValueError, match=r"'dynamic' .* beyond 5, .*use_cache=False"):
        model([6], kv=kv)
    text = list(model.generate([1, 2, 3], 6, use_cache=False))
    assert text[0] == int(model([1, 2, 3])[-1].argmax())
    assert text[-1] == int(model([1, 2, 3, *text[:-1]])[-1].argmax())


def test_generation_ends_with_the_context(rng) -> None:
    model = random_llama(rng)
    cached, plain = (list(model.generate([5, 3], 10, use_cache=use)) for use in (True, False))
    assert cached == plain
    with pytest.raises(ValueError, match="do not fit a context of 11"):
        model.generate([5, 3], 11)
    assert len(list(model.generate([5, 3], 30, slide=True))) == 30


def test_llama_3_8b_from_its_configuration_alone() -> None:
    config = LlamaConfig.from_dict(
        {
            "vocab_size": 128256,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
            "rope_theta": 500000.0,
        }
    )
    zero = np.zeros((), np.float32)
    params = {name: np.broadcast_to(zero, shape) for name, shape in param_shapes(config).items()}

    def total(beginning):
        return sum(a.size for name, a in params.items() if name.startswith(beginning))

    assert total("layers.0.") == 218_112_000
    assert total("layers.0.mlp.") == 176_160_768
    assert round(total("layers.0.mlp.") / total("layers.0."), 2) == 0.81
    model = Llama(config, params)
    assert model.num_params() == 8_030_261_248
    assert model.num_params(embeddings=False) == 32 * 218_112_000 + 4096
    tables = model.num_params() - model.num_params(embeddings=False)
    assert round(tables / model.num_params(), 2) == 0.13


def test_fresh_parameters(rng) -> None:
    params = init_params(tiny_llama_config(hidden_size=200, initializer_range=0.03), rng)
    assert {param.dtype for param in params.values()} == {np.dtype(np.float32)}
    assert params["layers.1.mlp.down_proj.weight"].std() == pytest.approx(0.03, rel=0.05)
    assert (params["norm.weight"] == 1).all()


@pytest.mark.parametrize("ids", [[], [[[1]]], [1.5], [19], [-1]])
def test_bad_ids(rng, ids) -> None:
    with pytest.raises(ValueError, match=r"ids must be|token id"):
        random_llama(rng)(ids)
