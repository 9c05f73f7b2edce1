"""What all models share: names of parameters, `repr`, which ids and settings are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from npgpt.layers import attention
from npgpt.models import causal
from npgpt.models.common import of, put
from tests.builders.bert import random_bert
from tests.builders.gpt2 import random_gpt2
from tests.builders.llama import random_llama
from tests.builders.transformer import random_transformer
from tests.gradcheck import check_close

REPR = {
    random_gpt2: "GPT2(2 blocks, 3 heads, d 12, V 19, {} parameters, float32)",
    random_llama: "Llama(2 blocks, 6 heads on 3, d 18, V 19, {} parameters, float32)",
    random_bert: "BERT(2 layers, 3 heads, d 12, V 19, {} parameters, float32)",
    random_transformer: "Transformer(transformer, 2 + 3 layers, 2 heads, d 12, V 19, "
    "{} parameters, float32)",
}


@pytest.mark.parametrize("random_model", REPR, ids=lambda make: make.__name__)
def test_repr_says_what_it_is(rng, random_model) -> None:
    model = random_model(rng, np.float32)
    assert repr(model) == REPR[random_model].format(f"{model.num_params():,}")


def test_parameters_come_in_the_order_in_which_gradients_are_put() -> None:
    params = {name: np.array(i) for i, name in enumerate(["a.weight", "a.bias", "b.weight"])}
    assert of(params, "b", "a") == [2, 0, 1]
    grads: dict[str, np.ndarray] = {}
    put(grads, "a", of=of(params, "a"))
    put(grads, "b", of=of(params, "b"))
    assert grads == params


def test_parts_must_all_have_a_bias_or_none() -> None:
    with pytest.raises(ValueError, match="zip"):
        put({}, "a", "b", of=[np.zeros(1)] * 3)
    with pytest.raises(KeyError, match=r"c\.weight"):
        of({"c.bias": np.zeros(1)}, "c")


INTEGERS = [*"bhilqBHILQ"]


def generated(model: Any, ids: Any, **options: Any) -> list[Any]:
    """What a model writes, as plain numbers."""
    return [np.asarray(tokens).tolist() for tokens in model.generate(ids, **options)]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("ids", [[1, 2, 3], [[1, 2, 3], [4, 5, 6]]], ids=["T", "B T"])
def test_ids_of_every_integer_dtype_are_the_same_ids(rng, ids, dtype) -> None:
    cast = np.array(ids, dtype)
    causal: tuple[dict[str, Any], ...] = ({}, {"use_cache": False}, {"temperature": 1.0, "seed": 3})
    writes: dict[Callable[..., Any], list[dict[str, Any]]] = {
        random_gpt2: [{"max_new_tokens": 5, **options} for options in causal],
        random_llama: [{"max_new_tokens": 5, **options} for options in causal],
        random_transformer: [{}, {"use_cache": False}, {"num_beams": 2}],
        random_bert: [],
    }
    for random_model, settings in writes.items():
        model = random_model(rng, np.float32)
        for options in settings:
            assert generated(model, cast, **options) == generated(model, ids, **options)
        assert model.loss_and_grads(cast, cast)[0] == model.loss_and_grads(ids, ids)[0]


def test_targets_of_a_narrow_dtype_do_not_narrow_the_start_token(rng) -> None:
    model = random_transformer(rng, np.float32, vocab_size=400, decoder_start_token_id=399)
    wide, narrow = (np.array([4, 5, -100], dtype) for dtype in (np.int64, np.int8))
    assert model.loss_and_grads([1, 2], narrow)[0] == model.loss_and_grads([1, 2], wide)[0]


@pytest.mark.parametrize("ids", [[1.0, 2.0], [True, False], ["1", "2"], [None], [2**70]], ids=str)
@pytest.mark.parametrize("random_model", [random_gpt2, random_llama, random_transformer])
def test_what_is_no_integer_is_no_id(rng, random_model, ids) -> None:
    with pytest.raises(ValueError, match=r"ids must be integers, but have dtype"):
        random_model(rng).generate(ids)


@pytest.mark.parametrize("random_model", [random_gpt2, random_llama, random_transformer])
def test_an_id_beyond_int64_is_refused(rng, random_model) -> None:
    with pytest.raises(ValueError, match=r"must be below 2\^63, but 18446744073709551615"):
        list(random_model(rng).generate(np.array([2**64 - 1], np.uint64), max_new_tokens=1))


@pytest.mark.parametrize("random_model", REPR, ids=lambda make: make.__name__)
@pytest.mark.parametrize("scalar", [np.float64, np.float32])
def test_settings_that_are_numpy_scalars_leave_float32_alone(random_model, scalar) -> None:
    """Values, and gradients with dropout and without; float64 at every setting that is a float."""
    model = random_model(np.random.default_rng(1), np.float32)
    unread = model.config.family.unread if random_model is random_llama else ()
    floats = {
        each.name: scalar(getattr(model.config, each.name) or 0.1)
        for each in fields(model.config)
        if type(getattr(model.config, each.name)) is float and each.name not in unread
    }
    assert floats
    plain = {name: float(value) for name, value in floats.items()}
    ids, targets = [[1, 2, 3], [4, 5, 6]], [[2, 3, -100], [5, 6, 7]]
    for draw in (lambda: np.random.default_rng(3), lambda: None):
        results = []
        for settings in (floats, plain):
            changed = type(model)(replace(model.config, **settings), model.params)
            loss, grads = changed.loss_and_grads(ids, targets, rng=draw())
            inputs = (ids, ids) if random_model is random_transformer else (ids,)
            results.append([loss, *grads.values(), changed(*inputs)])
        for got, want in zip(*results, strict=True):
            assert got.dtype == np.float32
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("random_model", REPR, ids=lambda make: make.__name__)
@pytest.mark.parametrize("dropout", [False, True])
def test_training_through_each_operation_by_itself_is_the_same(
    rng, random_model, dropout, monkeypatch
) -> None:
    """`flash=False`: no operation stands for several."""
    length = "n_positions" if random_model is random_gpt2 else "max_position_embeddings"
    model = random_model(rng, **{length: 140})  # the encoder-decoder takes tiles from 129 on
    ids, targets = rng.integers(3, 19, (2, 2, 140))
    targets[0, 5] = targets[1, 130:] = -100
    mask = np.ones_like(ids)
    mask[1, 130:] = 0

    def step(flash: bool) -> dict[str, np.ndarray]:
        draw = np.random.default_rng(1) if dropout else None
        loss, grads = model.loss_and_grads(ids, targets, mask, rng=draw, flash=flash)
        return {"loss": np.asarray(loss), **grads}

    fast = step(flash=True)
    for module, name in ((attention, "flash_attention_forward"), (causal, "lm_head_loss_forward")):
        monkeypatch.setattr(module, name, None)
    if not dropout:  # of the weights, which tiles leave out
        with pytest.raises(TypeError, match="'NoneType' object is not callable"):
            step(flash=True)
    check_close(step(flash=False), fast, 1e-12)
