"""A fault in another implementation of an encoder-decoder is found where it first matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npgpt.models.transformer import (
    embedding as transformer_embedding,
)
from npgpt.models.transformer import layers
from npgpt.models.transformer import (
    model as transformer,
)
from npgpt.models.transformer import (
    stacks as transformer_stacks,
)
from npgpt.models.transformer.model import Transformer
from npgpt.ops.sinusoids import sinusoids
from tests.builders.transformer import DIALECTS, random_transformer
from tests.compare.ports import TEXTS, moved, port, report, stations_of

CAUSAL = np.tri(len(TEXTS[Transformer][0]), dtype=bool)

SPOTS = {
    "encoder.layernorm_embedding.weight": "encoder.embed",
    "decoder.embed_positions.weight": "decoder.embed",
    "encoder.layers.1.self_attn.q_proj.bias": "encoder.layers.1.self_attn.probs",
    "encoder.layers.1.self_attn.v_proj.weight": "encoder.layers.1.self_attn",
    "encoder.layers.1.self_attn_layer_norm.bias": "encoder.layers.1.self_attn_layer_norm",
    "encoder.layers.1.fc1.weight": "encoder.layers.1.fc2",
    "encoder.layers.1.final_layer_norm.weight": "encoder.layers.1",
    "decoder.layers.2.self_attn.k_proj.weight": "decoder.layers.2.self_attn.probs",
    "decoder.layers.2.self_attn.out_proj.bias": "decoder.layers.2.self_attn",
    "decoder.layers.2.self_attn_layer_norm.weight": "decoder.layers.2.self_attn_layer_norm",
    "decoder.layers.2.encoder_attn.k_proj.weight": "decoder.layers.2.encoder_attn.probs",
    "decoder.layers.2.encoder_attn.v_proj.bias": "decoder.layers.2.encoder_attn",
    "decoder.layers.2.encoder_attn_layer_norm.bias": "decoder.layers.2.encoder_attn_layer_norm",
    "decoder.layers.2.fc2.bias": "decoder.layers.2.fc2",
    "decoder.layers.2.final_layer_norm.bias": "decoder.layers.2",
    "final_logits_bias": "logits",
    "shared.weight": "encoder.embed",
}


@pytest.mark.parametrize("name", SPOTS)
def test_one_weight_off_points_to_its_station(bart, tmp_path, name):
    param = bart.params[name]
    place = (0, 4) if len(param) == 1 else (4,) * param.ndim
    found = report(tmp_path, stations_of(port(bart, moved(bart, name, place, 0.05))))
    assert (found["code"], found["first_beyond"]) == (1, SPOTS[name])


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"activation_function": "gelu_new"}, "encoder.layers.0.fc2"),
    ({"scale_embedding": True}, "encoder.embed"),
    ({"decoder_start_token_id": 2}, "decoder.embed"),
]


@pytest.mark.parametrize(("options", "wanted"), SETTINGS)
def test_another_setting(bart, tmp_path, options, wanted):
    found = report(tmp_path, stations_of(port(bart, **options)))
    assert (found["code"], found["first_beyond"]) == (1, wanted)


# what is patched, by what (made of what was there), the first station that is wrong
WIRING: dict[str, tuple[Any, str, Callable[[Any], Any], str]] = {
    "a decoder that looks ahead": (
        transformer_stacks,
        "attention_mask_for",
        lambda _: lambda T, S, _: np.ones((T, S), bool),
        "decoder.layers.0.self_attn.probs",
    ),
    "a causal encoder": (
        transformer_stacks,
        "encoder_layer_forward",
        lambda f: lambda x, params, n, config, _, run: f(x, params, n, config, CAUSAL, run),
        "encoder.layers.0.self_attn.probs",
    ),
    "keys and values of the source swapped": (
        transformer,
        "cross_forward",
        lambda f: lambda *args: ([(v, k) for k, v in f(*args)[0]], f(*args)[1]),
        "decoder.layers.0.encoder_attn.probs",
    ),
    "another eps": (
        layers,
        "EPS",
        lambda _: 1e-3,
        "encoder.layers.0.self_attn_layer_norm",
    ),
    "another eps of the embeddings": (
        transformer_embedding,
        "EPS",
        lambda _: 1e-3,
        "encoder.embed",
    ),
    "positions from row 0 on": (
        transformer_embedding,
        "FIRST_POSITION",
        lambda _: 0,
        "encoder.embed",
    ),
    "a target that is not shifted": (
        Transformer,
        "shifted_right",
        lambda _: lambda _, targets: targets,
        "decoder.embed",
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fault", WIRING)
def test_wrong_wiring(bart, tmp_path, monkeypatch, fault, dtype):
    owner, name, make, wanted = WIRING[fault]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, make(getattr(owner, name)))
        other = stations_of(port(bart, dtype=dtype))
    found = report(tmp_path, other, "--dtype", dtype)
    assert (found["code"], found["first_beyond"]) == (1, wanted)


def test_alternating_sines_and_cosines(rng, tmp_path, monkeypatch):
    """As the paper has them; a marian has all sines first."""
    model = random_transformer(rng, np.float32, **DIALECTS["marian"])
    model.save_pretrained(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(transformer_embedding, "sinusoids_in_halves", sinusoids)
        other = stations_of(model)
    assert report(tmp_path, other)["first_beyond"] == "encoder.embed"
    assert report(tmp_path, stations_of(model))["code"] == 0


def test_a_shared_table_without_the_gradient_of_the_source(bart, tmp_path):
    other = stations_of(bart, gradients=True)
    grad = other["grad.shared.weight"]
    grad[3] *= 0.9  # id 3 is in the source alone
    found = report(tmp_path, other, "--gradients")
    assert (found["first_beyond"], found["first_gradient_beyond"]) == (None, "grad.shared.weight")
