"""What a pass collects, in which order, and how much of it is rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npgpt.compare.activations import (
    collect_in_other_precision,
    collect_stations,
    measure_rounding,
    next_token_targets,
    seen,
    where_unseen,
)
from npgpt.models.bert.model import BERT
from npgpt.models.gpt2.config import init_params, param_shapes
from npgpt.models.gpt2.model import GPT2
from npgpt.models.transformer.model import Transformer
from tests.builders.checkpoints import SMALL, random_params
from tests.compare.ports import TEXTS, stations_of

IDS = np.array([3, 1, 4])
BLOCK = (
    "ln_1 attn.q attn.k attn.v attn.scores attn.probs attn.context attn ln_2 mlp.c_fc mlp.act mlp"
)
FORWARD = [
    *("ids", "embed"),
    *(f"h.0.{part}" for part in BLOCK.split()),
    "h.0",
    *(f"h.1.{part}" for part in BLOCK.split()),
    *("h.1", "ln_f", "logits"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_names_shapes_and_dtype(dtype):
    params = random_params(dtype=dtype)
    stations = collect_stations(GPT2(SMALL, params), IDS, gradients=True)
    arriving, gradients = [f"grad.{name}" for name in FORWARD[1:]], [f"grad.{n}" for n in params]
    assert sorted(stations) == sorted([*FORWARD, "loss", *arriving, *gradients])
    assert [*stations][:30] == [*FORWARD, "loss"][:30]
    assert [*stations][31] == "grad.logits"
    assert [*stations][-len(params) :] == gradients
    shapes = {name: array.shape for name, array in stations.items()}
    assert {shapes[name] for name in ("embed", "h.0.attn", "h.1.mlp", "h.1", "ln_f")} == {(3, 6)}
    assert shapes["h.0.attn.probs"] == (2, 3, 3)
    assert shapes["logits"] == (3, 11)
    assert {shapes[f"h.1.attn.{part}"] for part in "qkv"} == {(2, 3, 3)}
    assert {shapes[f"h.1.{part}"] for part in ("ln_1", "ln_2", "attn.context")} == {(3, 6)}
    assert {shapes[f"h.1.mlp.{part}"] for part in ("c_fc", "act")} == {(3, 10)}
    assert all(shapes[name] == shapes[name.removeprefix("grad.")] for name in arriving)
    assert shapes["loss"] == ()
    assert all(shapes[f"grad.{n}"] == shape for n, shape in param_shapes(SMALL).items())
    assert {array.dtype.name for name, array in stations.items() if name != "ids"} == {dtype}


def test_loss_and_gradients_are_those_of_the_next_token():
    model = GPT2(SMALL, random_params(dtype=np.float64))
    stations = collect_stations(model, IDS, gradients=True)
    loss, grads = model.loss_and_grads(IDS[:-1], IDS[1:])
    assert stations["loss"] == pytest.approx(loss, rel=1e-13)
    for name, grad in grads.items():
        np.testing.assert_allclose(stations[f"grad.{name}"], grad, rtol=1e-9, atol=1e-13)


def test_without_gradients_the_pass_ends_with_the_logits():
    assert list(collect_stations(GPT2(SMALL, random_params()), IDS, gradients=False)) == FORWARD


def test_the_stations_add_up():
    s = collect_stations(GPT2(SMALL, random_params(dtype=np.float64)), IDS, gradients=False)
    np.testing.assert_allclose(s["h.0"], s["embed"] + s["h.0.attn"] + s["h.0.mlp"])
    np.testing.assert_allclose(s["h.1.attn.probs"].sum(axis=-1), np.ones((2, 3)))


def test_nothing_follows_the_last_token():
    assert next_token_targets(IDS).tolist() == [1, 4, -100]
    with pytest.raises(ValueError, match="at least two tokens"):
        collect_stations(GPT2(SMALL, random_params()), IDS[:1], gradients=True)


def test_rounding_is_the_same_seen_from_either_precision():
    config = replace(SMALL, n_layer=3)
    params = init_params(config, np.random.default_rng(1))
    rounding = {}
    for dtype in (np.float32, np.float64):
        model = GPT2(config, {name: param.astype(dtype) for name, param in params.items()})
        stations = collect_stations(model, IDS, gradients=True)
        moved = collect_in_other_precision(model, IDS, gradients=True)
        rounding[dtype] = measure_rounding(moved, stations)
        for name, norm in rounding[dtype].items():
            size = np.linalg.norm(seen(name, stations[name], stations))
            assert norm <= 1e-4 * size or norm < 1e-6, name
    assert rounding[np.float32] == rounding[np.float64]
    assert rounding[np.float32]["logits"] > 0


def test_rounding_is_no_excuse_where_float32_overflows():
    params = random_params(dtype=np.float64)
    params["h.1.mlp.c_proj.bias"] = params["h.1.mlp.c_proj.bias"] * 1e60
    model = GPT2(SMALL, params)
    stations = collect_stations(model, IDS, gradients=False)
    moved = collect_in_other_precision(model, IDS, gradients=False)
    rounding = measure_rounding(moved, stations)
    assert rounding["h.1.mlp"] == 0
    assert rounding["h.0.mlp"] > 0


def test_the_targets_of_a_bert_are_the_tokens_themselves(bert):
    stations = stations_of(bert, gradients=True)
    (ids,) = TEXTS[BERT]
    loss, grads = bert.loss_and_grads(ids, ids)
    assert stations["loss"] == pytest.approx(loss, rel=1e-6)
    assert {name for name, param in grads.items() if not param.any()} == {
        "pooler.dense.weight",
        "pooler.dense.bias",
    }
    for name, grad in grads.items():
        np.testing.assert_allclose(stations[f"grad.{name}"], grad, rtol=2e-4, atol=1e-6)


def test_names_shapes_and_loss_of_an_encoder_decoder(bart):
    stations = stations_of(bart, gradients=True)
    loss, grads = bart.loss_and_grads(*TEXTS[Transformer])
    assert stations["loss"] == pytest.approx(loss, rel=1e-6)
    for name, grad in grads.items():
        np.testing.assert_allclose(stations[f"grad.{name}"], grad, rtol=2e-4, atol=1e-6)
    attn = ("self_attn.probs", "self_attn", "self_attn_layer_norm")
    cross = ("encoder_attn.probs", "encoder_attn", "encoder_attn_layer_norm")
    names = ["ids", "target_ids", "encoder.embed"]
    for n in range(2):
        layer = f"encoder.layers.{n}"
        names += [*(f"{layer}.{part}" for part in (*attn, "fc2")), layer]
    names.append("decoder.embed")
    for n in range(3):
        layer = f"decoder.layers.{n}"
        names += [*(f"{layer}.{part}" for part in (*attn, *cross, "fc2")), layer]
    assert [n for n in stations if not n.startswith("grad.")] == [*names, "logits", "loss"]
    assert stations["encoder.layers.0.self_attn.probs"].shape == (3, 5, 5)
    assert stations["decoder.layers.0.self_attn.probs"].shape == (2, 4, 4)
    assert stations["decoder.layers.2.encoder_attn.probs"].shape == (2, 4, 5)
    assert stations["decoder.layers.2.encoder_attn"].shape == (4, 12)


def test_nobody_looks_above_the_diagonal():
    """A port may have anything there, in scores and in the gradients of scores and weights."""
    stations = collect_stations(GPT2(SMALL, random_params()), IDS, gradients=True)
    for name in ("h.1.attn.scores", "grad.h.1.attn.scores", "grad.h.1.attn.probs"):
        unseen = where_unseen(name, stations)
        assert unseen is not None
        assert unseen.tolist() == [np.triu(np.ones((3, 3), bool), 1).tolist()] * 2
        assert np.isfinite(seen(name, stations[name], stations)).all()
    assert where_unseen("h.1.attn.probs", stations) is None


def test_what_is_given_takes_the_place():
    """Each array is computed from the given ones; scores that are given keep the mask."""
    model = GPT2(SMALL, random_params(dtype=np.float64))
    own = collect_stations(model, IDS, gradients=True)
    given = {"h.0": 2 * own["h.0"], "h.1.attn.scores": np.zeros((2, 3, 3)), "grad.h.0": own["h.0"]}
    found = collect_stations(model, IDS, gradients=True, given=given)
    np.testing.assert_array_equal(found["h.0"], own["h.0"])
    np.testing.assert_allclose(found["h.1"], 2 * own["h.0"] + found["h.1.attn"] + found["h.1.mlp"])
    np.testing.assert_allclose(found["h.1.attn.probs"][:, 2], 1 / 3)
    np.testing.assert_allclose(found["h.1.attn.probs"][:, 0], [[1, 0, 0]] * 2)
    np.testing.assert_array_equal(found["grad.h.0.mlp"], own["h.0"])
