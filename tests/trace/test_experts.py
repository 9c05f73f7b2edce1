"""One token's way through a model with experts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npgpt.models.llama.mlp import neurons_of
from npgpt.trace.edits import ablate
from npgpt.trace.lens import observe, strongest_neurons
from tests.builders.llama import random_llama
from tests.trace.conftest import write_llama

IDS = [5, 18, 17, 5, 2, 11, 8]
FAMILIES: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 5},
    "qwen3_moe": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 7,
        "decoder_sparse_step": 2,
    },
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layer", [0, 1])
def test_neurons_of_all_experts_sum_to_the_correction(rng, family, layer) -> None:
    """Those of experts that a token does not go to are 0."""
    model = random_llama(rng, model_type=family, **FAMILIES[family])
    seen = observe(model, IDS)
    gate, value, active, rows = neurons_of(seen.saved.blocks[layer].mlp)
    added = seen.stations[f"layers.{layer}.mlp"]
    np.testing.assert_allclose(active @ rows, added, rtol=1e-9, atol=1e-12)
    assert len(rows) == model.config.ffn_widths[layer]
    found = strongest_neurons(seen, layer, 4, top=len(rows))
    np.testing.assert_allclose(
        sum(n.activation * rows[n.number] for n in found), added[4], rtol=1e-9, atol=1e-12
    )
    if model.config.sparse[layer]:
        E, k = model.config.num_local_experts, model.config.num_experts_per_tok
        weights = seen.stations[f"layers.{layer}.mlp.weights"]
        for array in (gate, value, active):
            at_work = array.reshape(len(IDS), E, -1).any(axis=-1)
            np.testing.assert_array_equal(at_work, weights > 0)
        assert (weights > 0).sum(axis=-1).tolist() == [k] * len(IDS)
        product = np.repeat(weights, len(rows) // E, axis=1) * gate * value
        np.testing.assert_allclose(active, product, rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_report_says_what_is_multiplied(run, tmp_path, family) -> None:
    code, out, err = run(write_llama(tmp_path, model_type=family, **FAMILIES[family]), "a text")
    assert (code, err) == (0, "")
    width = 10 if family == "mixtral" else 7
    assert f"the expert's weight, and neuron n is one of expert n // {width};" in " ".join(
        out.split()
    )


def test_a_head_can_be_switched_off(rng) -> None:
    model = random_llama(rng, model_type="mixtral", num_local_experts=5)
    (effect,) = ablate(model, IDS, heads=[(1, 2)])
    assert effect.change != 0
