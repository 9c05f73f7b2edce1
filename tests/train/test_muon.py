"""Muon against the singular values that its formula promises, and against torch."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from npgpt.models.bert.config import param_shapes as bert_shapes
from npgpt.models.gpt2.config import param_shapes as gpt2_shapes
from npgpt.models.llama.config import param_shapes as llama_shapes
from npgpt.models.transformer.config import param_shapes as transformer_shapes
from npgpt.train.optim import adamw_step, is_hidden, muon_step, new_muon_state, orthogonalized
from tests.builders.bert import tiny_bert_config
from tests.builders.gpt2 import tiny_gpt2_config
from tests.builders.llama import tiny_llama_config
from tests.builders.transformer import random_transformer

SHAPES = [(5, 5), (4, 7), (4, 8), (3, 30), (7, 4), (30, 3), (1, 6), (6, 1), (1, 1)]
NAME = "h.0.mlp.c_fc.weight"
FUSED = "h.0.attn.c_attn.weight"
HYPER = {"lr": 0.1, "weight_decay": 0.3}


def by_singular_values(matrix):
    """The same iteration on numbers: σ -> a σ + b σ³ + c σ⁵, five times."""
    u, sigma, v = np.linalg.svd(matrix, full_matrices=False)
    sigma = sigma / np.sqrt((sigma**2).sum())
    for _ in range(5):
        sigma = 3.4445 * sigma - 4.7750 * sigma**3 + 2.0315 * sigma**5
    return (u * sigma) @ v


def with_singular_values(rng, shape, sigma):
    """A matrix of these singular values, in directions drawn at random."""
    count = min(shape)
    u, v = (np.linalg.qr(rng.standard_normal((size, count)))[0] for size in shape)
    return (u * sigma) @ v.T


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_orthogonalized_is_the_quintic_of_the_singular_values(rng, shape, order):
    matrix = np.asarray(rng.standard_normal(shape), order=order)
    before = matrix.copy()
    np.testing.assert_allclose(orthogonalized(matrix), by_singular_values(matrix), atol=1e-11)
    np.testing.assert_array_equal(matrix, before)


@pytest.mark.parametrize("shape", [(40, 40), (40, 60), (40, 160), (160, 40)])
def test_singular_values_come_near_1_in_float32(rng, shape):
    """Also where most are far too small to be exact in the first A, which has their squares."""
    sigma = np.logspace(0, -6, 40)
    matrix = with_singular_values(rng, shape, sigma)
    found = orthogonalized(matrix.astype(np.float32))
    assert found.dtype == np.float32
    assert np.linalg.norm(found - by_singular_values(matrix), 2) < 2e-3
    values = np.linalg.svd(found, compute_uv=False)
    large = (sigma > 0.0015 * np.sqrt((sigma**2).sum())).sum()
    assert 15 < large < 25
    assert values.max() < 1.21
    assert values[:large].min() > 0.68
    assert values[large:].max() < 1.21


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_zero_stays_zero(shape):
    np.testing.assert_array_equal(orthogonalized(np.zeros(shape, np.float32)), np.zeros(shape))


def test_hidden_are_the_matrices_of_the_blocks(rng):
    transformer = random_transformer(rng).config
    outside = {
        "gpt2": gpt2_shapes(tiny_gpt2_config(tie_word_embeddings=False)),
        "llama": llama_shapes(tiny_llama_config(tie_word_embeddings=False)),
        "bert": bert_shapes(tiny_bert_config()),
        "transformer": transformer_shapes(transformer),
    }
    for shapes in outside.values():
        for name, shape in shapes.items():
            in_block = any(f".{word}." in f".{name}" for word in ("h", "layers", "layer"))
            assert is_hidden(name, shape) == (in_block and len(shape) == 2), name
        assert any(is_hidden(name, shape) for name, shape in shapes.items())
    assert not is_hidden("lm_head.weight", (9, 4))
    assert not is_hidden("h.0.ln_1.weight", (4,))


@pytest.mark.parametrize("shape", SHAPES)
def test_three_steps_by_the_formula(rng, shape):
    params = {NAME: rng.standard_normal(shape)}
    state, wanted, mean = new_muon_state(params), params[NAME].copy(), 0
    for step in (1, 2, 3):
        grad = rng.standard_normal(shape)
        muon_step(params, {NAME: grad}, state, step=step, momentum=0.8, **HYPER)
        mean = 0.8 * mean + 0.2 * grad
        update = by_singular_values(0.8 * mean + 0.2 * grad)
        wanted = wanted * (1 - 0.1 * 0.3) - 0.1 * 0.2 * max(shape) ** 0.5 * update
        np.testing.assert_allclose(params[NAME], wanted, atol=1e-11)
        np.testing.assert_allclose(state.first[NAME], mean, atol=1e-14)
    assert state.second == {}


def test_queries_keys_and_values_are_three_matrices(rng):
    params, grads = ({FUSED: rng.standard_normal((4, 12))} for _ in range(2))
    apart = {
        f"layers.0.{name}.weight": params[FUSED][:, columns].copy()
        for name, columns in (("q", slice(4)), ("k", slice(4, 8)), ("v", slice(8, 12)))
    }
    given = dict(zip(apart, np.split(grads[FUSED], 3, axis=1), strict=True))
    muon_step(params, grads, new_muon_state(params), step=1, **HYPER)
    muon_step(apart, given, new_muon_state(apart), step=1, **HYPER)
    np.testing.assert_allclose(params[FUSED], np.hstack([*apart.values()]), atol=1e-13)


def test_the_rest_takes_the_step_of_adamw(rng):
    shapes = {"wte.weight": (7, 4), "h.0.ln_1.weight": (4,), NAME: (4, 6), "lm_head.weight": (7, 4)}
    params, grads = ({n: rng.standard_normal(s) for n, s in shapes.items()} for _ in range(2))
    rest = {name: param.copy() for name, param in params.items() if name != NAME}
    state, alone = new_muon_state(params), new_muon_state(rest)
    assert state.second.keys() == rest.keys()
    for step in (1, 2):
        muon_step(params, grads, state, step=step, lr=0.1, beta1=0.8, beta2=0.95)
        adamw_step(rest, grads, alone, step=step, lr=0.1, beta1=0.8, beta2=0.95)
    for name, param in rest.items():
        np.testing.assert_array_equal(params[name], param)
        np.testing.assert_array_equal(state.first[name], alone.first[name])
        np.testing.assert_array_equal(state.second[name], alone.second[name])


def test_in_place_in_the_parameters_dtype_without_a_second_model():
    params = {f"h.{n}.mlp.c_fc.weight": np.ones((100, 400), np.float32) for n in range(40)}
    grads, arrays = {name: param.copy() for name, param in params.items()}, dict(params)
    state = new_muon_state(params)
    tracemalloc.start()
    muon_step(params, grads, state, step=1, lr=np.float64(1e-3))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * 160_000 / 4
    for name, param in params.items():
        assert param is arrays[name]
        assert param.dtype == state.first[name].dtype == np.float32
        assert (param != 1).all()


@pytest.mark.hf
@pytest.mark.parametrize(
    ("dtype", "atol"), [(np.float64, 1e-12), (np.float32, 1e-4)], ids=["float64", "float32"]
)
@pytest.mark.parametrize("shape", [(32, 32), (32, 96), (32, 128), (128, 32), (40, 24)])
def test_ten_steps_equal_torch(hf, rng, monkeypatch, shape, dtype, atol):
    """In the dtype of the parameters: torch would round to bfloat16 before it iterates."""
    import torch

    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    params = {NAME: rng.standard_normal(shape).astype(dtype)}
    theirs = torch.from_numpy(params[NAME].copy())
    options = {"momentum": 0.95, "adjust_lr_fn": "match_rms_adamw"}
    optimizer = torch.optim.Muon([theirs], **HYPER, **options)
    state = new_muon_state(params)
    for step in range(1, 11):
        # With singular values from 1 to a millionth, as gradients have them.
        sigma = np.logspace(0, -6, min(shape))
        grad = with_singular_values(rng, shape, sigma).astype(dtype)
        theirs.grad = torch.from_numpy(grad)
        optimizer.step()
        muon_step(params, {NAME: grad}, state, step=step, **HYPER)
        np.testing.assert_allclose(params[NAME], theirs.numpy(), rtol=0, atol=atol)
        mean = optimizer.state[theirs]["momentum_buffer"]
        np.testing.assert_allclose(state.first[NAME], mean.numpy(), rtol=0, atol=atol / 100)
