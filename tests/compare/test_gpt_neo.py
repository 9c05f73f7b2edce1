"""`python -m npgpt.compare` on a GPT-Neo, and known faults of a port of one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npgpt.compare.activations import collect_stations, is_optional
from npgpt.models.gpt_neo.model import GPTNeo
from tests.builders.gpt_neo import random_gpt_neo
from tests.compare.ports import report, run

IDS = np.array([7, 3, 11, 7, 1, 2, 9])


@pytest.fixture
def model(rng, tmp_path) -> GPTNeo:
    """One with a window of four, in its folder."""
    model = random_gpt_neo(rng, np.float32)
    model.save_pretrained(tmp_path)
    return model


@pytest.mark.hf
@pytest.mark.parametrize("local", [(), ("--local",)])
def test_every_station_and_gradient(hf, model, tmp_path, local) -> None:
    """transformers' scores and softmax are in float32, so it is the tolerance that tells."""
    ids = " ".join(map(str, IDS))
    code, out, err = run("--model", tmp_path, "--ids", ids, "--gradients", "--json", *local)
    found: dict[str, Any] = json.loads(out)
    assert (code, err) == (0, ""), found["first_beyond"] or found["first_gradient_beyond"]
    assert found["missing"] == found["unknown"] == []
    assert len(found["stations"]) == 13 * 2 + 4
    assert len(found["gradients"]) == len(model.params)


def without_bias(model: GPTNeo) -> GPTNeo:
    params = {n: 0 * p if "out_proj.bias" in n else p for n, p in model.params.items()}
    return GPTNeo(model.config, params)


FAULTS = {
    "no window": lambda m: GPTNeo(replace(m.config, window_size=40), m.params),
    "a scale 1/√d_h": lambda m: GPTNeo(replace(m.config, scale_attn_weights=True), m.params),
    "without h.N.attn.attention.out_proj.bias": without_bias,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_known_fault_is_recognised(model, tmp_path, fault) -> None:
    stations = collect_stations(FAULTS[fault](model), IDS, gradients=False)
    shown = {name: array for name, array in stations.items() if not is_optional(name, model.params)}
    assert fault in json.dumps(report(tmp_path, shown), ensure_ascii=False)
