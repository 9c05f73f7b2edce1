"""BERT: the gradients of every parameter, its heads, its mask, and which parameters there are."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npgpt.models.bert.config import BERTConfig, init_params, param_shapes
from npgpt.models.bert.model import BERT
from npgpt.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward
from tests.builders.bert import random_bert, tiny_bert_config
from tests.gradcheck import check_close, check_direction

B, T, V = 3, 7, 19
BASE = BERTConfig()


def random_batch(rng):
    """ids, targets, attention_mask with padding, token types."""
    ids, targets = rng.integers(0, V, (2, B, T))
    attention_mask = np.arange(T) < np.array([[7], [4], [6]])
    targets[(rng.random((B, T)) < 0.5) | ~attention_mask] = -100
    return ids, targets, attention_mask, rng.integers(0, 2, (B, T))


@pytest.mark.parametrize(
    "options",
    [{}, {"tie_word_embeddings": False, "hidden_act": "silu"}, {"num_attention_heads": 1}],
)
def test_every_gradient_predicts_the_change_of_the_loss(rng, options) -> None:
    model = random_bert(rng, pooler=False, **options)
    ids, targets, *context = random_batch(rng)
    _, grads = model.loss_and_grads(ids, targets, *context)

    def loss_fn(params):
        logits = BERT(model.config, params)(ids, *context)
        return float(cross_entropy_forward(logits, targets)[0])

    check_direction(loss_fn, model.params, grads, rng)


def test_gradients_from_all_three_outputs_at_once(rng) -> None:
    model = random_bert(rng)
    ids, _, *context = random_batch(rng)
    out = model.forward(ids, *context)
    upstream = [rng.standard_normal(shape) for shape in ((B, T, 12), (B, 12), (B, T, V))]
    dhidden, dpooled, dlogits = upstream
    grads = model.backward(dlogits, out.saved, dhidden=dhidden, dpooled=dpooled)

    def loss_fn(params):
        hidden, pooled, logits, _ = BERT(model.config, params).forward(ids, *context)
        outputs = zip(upstream, (hidden, pooled, logits), strict=True)
        return sum(float((dy * y).sum()) for dy, y in outputs)

    check_direction(loss_fn, model.params, grads, rng)
    alone = [
        model.backward(dlogits, out.saved),
        model.backward(None, out.saved, dpooled=dpooled),
        model.backward(None, out.saved, dhidden=dhidden),
    ]
    summed = {name: sum(each[name] for each in alone) for name in grads}
    check_close(summed, grads, 1e-12)
    assert not alone[0]["pooler.dense.weight"].any()
    assert not alone[1]["cls.predictions.bias"].any()


def test_gradients_through_dropout(rng) -> None:
    """The same generator draws the same masks, so the loss is a smooth function again."""
    model = random_bert(
        rng, pooler=False, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3
    )
    ids, targets, *context = random_batch(rng)
    _, grads = model.loss_and_grads(ids, targets, *context, rng=np.random.default_rng(3))

    def loss_fn(params):
        out = BERT(model.config, params).forward(ids, *context, rng=np.random.default_rng(3))
        assert out.logits is not None
        return float(cross_entropy_forward(out.logits, targets)[0])

    check_direction(loss_fn, model.params, grads, rng)


@pytest.mark.parametrize("name", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_each_dropout_draws_only_in_training_and_only_from_its_generator(rng, name) -> None:
    pdrop: dict[str, Any] = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, name: 0.5}
    model, ids = random_bert(rng, **pdrop), rng.integers(0, V, T)
    first, again, other = (
        model.forward(ids, rng=np.random.default_rng(n)).hidden for n in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3
    np.testing.assert_array_equal(model.forward(ids, flash=True).hidden, model.encode(ids))


def test_the_head_at_the_asked_positions_is_the_head_everywhere(rng) -> None:
    """`loss_and_grads` scores targets only; the whole way gives the same numbers."""
    model = random_bert(rng)
    ids, targets, *context = random_batch(rng)
    loss, grads = model.loss_and_grads(ids, targets, *context)
    out = model.forward(ids, *context)
    assert out.logits is not None
    whole, saved_loss = cross_entropy_forward(out.logits, targets)
    assert loss == pytest.approx(float(whole), rel=1e-13)
    whole_grads = model.backward(cross_entropy_backward(1.0, saved_loss), out.saved)
    pooler = ("pooler.dense.weight", "pooler.dense.bias")
    assert not any(grads.pop(name).any() or whole_grads.pop(name).any() for name in pooler)
    check_close(grads, whole_grads, 1e-12)


def test_everybody_sees_everybody_but_padding(rng) -> None:
    model, ids = random_bert(rng), rng.integers(0, V, T)
    changed = ids.copy()
    changed[3] = (ids[3] + 1) % V
    assert (model.encode(ids) != model.encode(changed)).any(axis=-1).all()
    seen = np.arange(T) != 3
    hidden, other = model.encode(ids, seen), model.encode(changed, seen)
    np.testing.assert_array_equal(hidden[seen], other[seen])
    probs = model.forward(ids, seen).saved.layers[1].attn.probs
    assert probs.shape == (3, T, T)
    assert not probs[..., 3].any()
    np.testing.assert_allclose(probs.sum(axis=-1), 1)


def test_padding_changes_nothing_and_a_batch_is_its_rows(rng) -> None:
    model = random_bert(rng)
    ids, _, seen, types = random_batch(rng)
    out = model.forward(ids, seen, types)
    assert out.pooled is not None
    assert out.logits is not None
    for row, n in enumerate((7, 4, 6)):
        alone: Any = model.forward(ids[row, :n], token_type_ids=types[row, :n])
        np.testing.assert_allclose(out.hidden[row, :n], alone.hidden, rtol=0, atol=1e-12)
        np.testing.assert_allclose(out.pooled[row], alone.pooled, rtol=0, atol=1e-12)
        np.testing.assert_allclose(out.logits[row, :n], alone.logits, rtol=0, atol=1e-11)
    np.testing.assert_allclose(model(ids, seen, types), out.logits, rtol=0, atol=1e-11)


def test_without_heads(rng) -> None:
    model = random_bert(rng, pooler=False, mlm_head=False)
    out = model.forward([1, 2, 3])
    assert (out.pooled, out.logits) == (None, None)
    grads = model.backward(None, out.saved, dhidden=np.ones((3, 12)))
    assert list(grads) == list(model.params)
    for refused in (lambda: model([1, 2, 3]), lambda: model.loss_and_grads([1, 2], [1, -100])):
        with pytest.raises(ValueError, match=r"no MLM head .* `encode` gives its hidden states"):
            refused()
    with pytest.raises(ValueError, match="dlogits is given, but this BERT has no MLM head"):
        model.backward(np.ones((3, V)), out.saved)
    with pytest.raises(ValueError, match="dpooled is given, but this BERT has no pooler"):
        model.backward(None, out.saved, dpooled=np.ones(12))


def test_float32_stays_float32(rng) -> None:
    model = random_bert(rng, np.float32, hidden_dropout_prob=0.1)
    ids, targets, *context = random_batch(rng)
    out = model.forward(ids, *context)
    loss, grads = model.loss_and_grads(ids, targets, *context, rng=rng)
    arrays = [out.hidden, out.pooled, out.logits, model(ids), loss, *grads.values()]
    grads = model.backward(out.logits, out.saved, dhidden=out.hidden, dpooled=out.pooled)
    assert {np.asarray(a).dtype for a in [*arrays, *grads.values()]} == {np.dtype(np.float32)}


def test_a_tied_table_gets_both_contributions(rng) -> None:
    tied = random_bert(rng)
    ids, targets, *context = random_batch(rng)
    words, decoder = "embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
    config = replace(tied.config, tie_word_embeddings=False)
    untied = BERT(config, {**tied.params, decoder: tied.params[words]})
    loss, grads = tied.loss_and_grads(ids, targets, *context)
    untied_loss, untied_grads = untied.loss_and_grads(ids, targets, *context)
    assert loss == untied_loss
    both = untied_grads[words] + untied_grads[decoder]
    np.testing.assert_allclose(grads[words], both, rtol=1e-12, atol=1e-15)
    unused = np.setdiff1d(np.arange(V), ids)
    assert unused.size
    assert not untied_grads[words][unused].any()
    assert untied_grads[decoder].all()


def test_nothing_asked_gives_zero_loss_and_zero_gradients(rng) -> None:
    loss, grads = random_bert(rng).loss_and_grads([1, 2, 3], [-100] * 3)
    assert loss == 0
    assert not any(grad.any() for grad in grads.values())


def test_the_stations(rng) -> None:
    model, seen = random_bert(rng), dict[str, np.ndarray]()
    out = model.forward([1, 2, 3], observe=seen.__setitem__)
    attn = (".attention.self.probs", ".attention.output.dense", ".attention.output.LayerNorm")
    layers = [f"encoder.layer.{n}{part}" for n in (0, 1) for part in (*attn, ".output.dense", "")]
    wanted = ["embed", *layers, "pooler", "logits"]
    assert [name for name in seen if name in wanted] == wanted
    np.testing.assert_array_equal(seen["encoder.layer.1"], out.hidden)
    probs = out.saved.layers[0].attn.probs
    np.testing.assert_array_equal(seen["encoder.layer.0.attention.self.probs"], probs)


def test_the_parameters_of_bert_base() -> None:
    """109.5 million, counted from shapes alone: views of one zero, not 440 MB."""
    shapes = param_shapes(BASE, mlm_head=False)
    model = BERT(BASE, {n: np.broadcast_to(np.float32(0), s) for n, s in shapes.items()})
    assert model.num_params() == 109_482_240
    assert model.num_params(embeddings=False) == 109_482_240 - 512 * 768
    size = {name: math.prod(shape) for name, shape in param_shapes(BASE).items()}
    layer = sum(n for name, n in size.items() if name.startswith("encoder.layer.11."))
    assert layer == 7_087_872  # as many as a block of GPT-2 small
    assert sum(n for name, n in size.items() if name.startswith("pooler.")) == 590_592
    assert sum(n for name, n in size.items() if name.startswith("cls.")) == 622_650
    assert sum(size.values()) == 110_104_890


def test_fresh_parameters_have_berts_scales(rng) -> None:
    params = init_params(tiny_bert_config(hidden_size=60, initializer_range=0.03), rng)
    assert {param.dtype for param in params.values()} == {np.dtype(np.float32)}
    assert params["encoder.layer.1.output.dense.weight"].std() == pytest.approx(0.03, rel=0.1)
    assert params["embeddings.word_embeddings.weight"].std() == pytest.approx(0.03, rel=0.1)
    assert not params["cls.predictions.bias"].any()
    assert (params["embeddings.LayerNorm.weight"] == 1).all()
    assert not params["embeddings.LayerNorm.bias"].any()


def test_a_fresh_model_guesses_blindly(rng) -> None:
    config = tiny_bert_config(vocab_size=16)
    model = BERT(config, init_params(config, rng, np.float64, pooler=False))
    ids, targets = rng.integers(0, 16, (2, 5, 8))
    assert abs(model.loss_and_grads(ids, targets)[0] - math.log(16)) < 0.05
