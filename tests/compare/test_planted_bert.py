"""A fault in another implementation of a BERT is found where it first matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npgpt.models.bert import heads as bert_heads
from npgpt.models.bert import model as bert_model
from tests.compare.ports import moved, port, report, stations_of

LAYER = "encoder.layer.1."


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"layer_norm_eps": 1e-3}, "embed"),
    ({"hidden_act": "gelu_new"}, "encoder.layer.0.output.dense"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("options", "wanted"), SETTINGS)
def test_another_setting(bert, tmp_path, options, wanted, dtype):
    other = stations_of(port(bert, dtype=dtype, **options))
    found = report(tmp_path, other, "--dtype", dtype)
    assert (found["code"], found["first_beyond"]) == (1, wanted)


SPOTS = {
    "embeddings.word_embeddings.weight": "embed",
    "embeddings.position_embeddings.weight": "embed",
    "embeddings.token_type_embeddings.weight": "embed",
    "embeddings.LayerNorm.bias": "embed",
    LAYER + "attention.self.query.weight": LAYER + "attention.self.probs",
    LAYER + "attention.self.query.bias": LAYER + "attention.self.probs",
    LAYER + "attention.self.key.weight": LAYER + "attention.self.probs",
    LAYER + "attention.self.value.bias": LAYER + "attention.output.dense",
    LAYER + "attention.output.dense.weight": LAYER + "attention.output.dense",
    LAYER + "attention.output.LayerNorm.weight": LAYER + "attention.output.LayerNorm",
    LAYER + "intermediate.dense.bias": LAYER + "output.dense",
    LAYER + "output.dense.weight": LAYER + "output.dense",
    LAYER + "output.LayerNorm.bias": "encoder.layer.1",
    "pooler.dense.weight": "pooler",
    "cls.predictions.transform.dense.weight": "logits",
    "cls.predictions.transform.LayerNorm.bias": "logits",
    "cls.predictions.bias": "logits",
}


@pytest.mark.parametrize("name", SPOTS)
def test_one_weight_off_points_to_its_station(bert, tmp_path, name):
    place = (0 if "type" in name else 5, 4)[: bert.params[name].ndim]
    found = report(tmp_path, stations_of(port(bert, moved(bert, name, place, 0.02))))
    assert (found["code"], found["first_beyond"]) == (1, SPOTS[name])


@pytest.mark.parametrize("part", ["query", "key", "value"])
def test_a_square_matrix_transposed(bert, tmp_path, part):
    name = f"{LAYER}attention.self.{part}.weight"
    other = stations_of(port(bert, {name: bert.params[name].T}))
    wanted = "attention.output.dense" if part == "value" else "attention.self.probs"
    assert report(tmp_path, other)["first_beyond"] == LAYER + wanted


WIRING: dict[str, tuple[Any, str, Callable[[Any], Any], str]] = {
    "a causal mask": (
        bert_model,
        "query_attention_forward",
        lambda f: lambda x, *a, mask, **o: f(x, *a, mask=np.tri(len(x), dtype=bool), **o),
        "encoder.layer.0.attention.self.probs",
    ),
    "no scale": (
        bert_model,
        "query_attention_forward",
        lambda f: lambda *a, divisor, **o: f(*a, divisor=1.0, **o),
        "encoder.layer.0.attention.self.probs",
    ),
    "no norm between": (
        bert_model,
        "layer_norm_forward",
        lambda _: lambda x, *_, **__: (x, None),
        "encoder.layer.0.attention.output.LayerNorm",
    ),
    "a linear pooler": (bert_heads, "tanh_forward", lambda _: lambda x: (x, x), "pooler"),
}


@pytest.mark.parametrize("fault", WIRING)
def test_wrong_wiring(bert, tmp_path, monkeypatch, fault):
    module, name, make, wanted = WIRING[fault]
    with monkeypatch.context() as patch:
        patch.setattr(module, name, make(getattr(module, name)))
        other = stations_of(bert)
    found = report(tmp_path, other)
    assert (found["code"], found["first_beyond"]) == (1, wanted)


def test_a_tied_table_without_the_gradient_of_the_head(bert, tmp_path):
    other = stations_of(bert, gradients=True)
    table = "embeddings.word_embeddings.weight"
    untied = port(bert, {"cls.predictions.decoder.weight": bert.params[table]})
    untied = port(untied, tie_word_embeddings=False)
    alone = stations_of(untied, gradients=True)
    other[f"grad.{table}"] = alone[f"grad.{table}"]
    found = report(tmp_path, other, "--gradients")
    assert (found["first_beyond"], found["first_gradient_beyond"]) == (None, f"grad.{table}")


def test_a_gradient_of_the_keys_bias_is_rounding_or_a_fault(bert, tmp_path):
    """It is 0 except for rounding, so a port may have exactly 0; anything else is wrong."""
    name = f"grad.{LAYER}attention.self.key.bias"
    other = stations_of(bert, gradients=True)
    weight = np.linalg.norm(other[name.replace("bias", "weight")])
    assert np.linalg.norm(other[name]) < 1e-5 * weight
    other[name] = np.zeros_like(other[name])
    assert report(tmp_path, other, "--gradients")["code"] == 0
    assert report(tmp_path, other, "--gradients", "--tolerance", "1e-4")["code"] == 0
    other[name] = other[name] + 1e-3 * weight
    found = report(tmp_path, other, "--gradients")
    assert (found["code"], found["first_gradient_beyond"]) == (1, name)
