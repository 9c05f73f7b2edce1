"""The graph of each architecture is that of its pass, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npgpt.compare.activations import GRAD, INPUTS, collect_stations, seen
from npgpt.compare.wiring import Wiring, find_range, wiring_of
from tests.builders.bert import random_bert
from tests.builders.gpt2 import random_gpt2
from tests.builders.llama import random_llama
from tests.builders.transformer import random_transformer

MODELS: dict[str, Callable[..., Any]] = {
    "gpt2": random_gpt2,
    "llama": random_llama,
    "bert": random_bert,
    "2017": random_transformer,
    "bart": lambda rng: random_transformer(rng, model_type="bart"),
}
IDS, TARGET_IDS = np.array([3, 1, 4, 1, 5, 2]), np.array([4, 6, 3, 2])


def inputs_of(model: Any) -> tuple[np.ndarray, ...]:
    return (IDS, TARGET_IDS) if hasattr(model, "shifted_right") else (IDS,)


@pytest.fixture(params=MODELS)
def model(request, rng) -> Any:
    return MODELS[request.param](rng)


def changed(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> set[str]:
    """The names of arrays that differ: what is computed anew from the same is the same."""
    return {
        name
        for name, array in before.items()
        if not np.array_equal(seen(name, array, before), seen(name, after[name], before))
    }


def without(names: set[str], start: str) -> set[str]:
    return {name for name in names if not name.startswith(start)}


def test_each_station_is_read_by_what_the_graph_says(model) -> None:
    """All stations are given, one of them another: what differs then was computed from it."""
    own = collect_stations(model, *inputs_of(model), gradients=True)
    own = collect_stations(model, *inputs_of(model), gradients=True, given=own)
    wiring = wiring_of(model)
    for name in own:
        if name in INPUTS or name == "loss" or name.removeprefix(GRAD) in model.params:
            continue
        given = {**own, name: 0.1 - 1.5 * own[name]}
        moved = collect_stations(model, *inputs_of(model), gradients=True, given=given)
        differ = changed(own, moved) - {name}
        if not name.startswith(GRAD):  # of a BERT's heads not all that might be is used
            differ, operands = without(differ, GRAD), differ - without(differ, GRAD)
            wanted = {n for n, used in wiring.operands.items() if name in used}
            heads = {n for n in wanted if n.startswith(("grad.cls.", "grad.pooler."))}
            assert operands - heads == wanted - heads, name
        assert differ == {n for n, read in wiring.reads.items() if name in read}, name


def test_each_parameter_is_used_where_the_graph_says(model) -> None:
    own = collect_stations(model, *inputs_of(model), gradients=True)
    own = collect_stations(model, *inputs_of(model), gradients=True, given=own)
    wiring = wiring_of(model)
    assert set(wiring.made_by) >= {*own} - {*INPUTS}
    for param, array in model.params.items():
        model.params[param] = array * 1.5 + 0.1
        moved = collect_stations(model, *inputs_of(model), gradients=True, given=own)
        model.params[param] = array
        users = without(changed(own, moved), GRAD)
        gradients = {name.removeprefix(GRAD) for name in wiring.reads[GRAD + param]}
        assert users == gradients, param


def test_a_range_ends_at_what_is_there(rng) -> None:
    wiring = wiring_of(random_gpt2(rng))
    found = range_of(wiring, "h.1", ["embed", "h.0", "h.1", "logits"])
    assert (found.after, found.dump) == (["h.0"], ["h.1.attn", "h.1.mlp"])
    assert {"h.1.ln_1", "h.1.attn.scores", "h.1.mlp.act"} < {*found.within}
    found = range_of(wiring, "h.1.mlp", ["h.1.mlp.act", "h.1.mlp"])
    assert (found.after, found.within, found.made_by) == (["h.1.mlp.act"], [], ["mlp.c_proj"])
    found = range_of(wiring, "logits", ["logits"])
    assert (found.after, found.dump) == ([], ["embed", "h.0", "h.1", "ln_f"])


def test_a_value_is_no_way_around_a_missing_key(rng) -> None:
    """`v` stands right before the scores, but they do not depend on it."""
    wiring = wiring_of(random_gpt2(rng))
    there = ["h.1.ln_1", "h.1.attn.q", "h.1.attn.v", "h.1.attn.scores"]
    found = range_of(wiring, "h.1.attn.scores", there)
    assert (found.after, found.within) == (["h.1.ln_1", "h.1.attn.q"], ["h.1.attn.k"])


def test_the_gradient_of_a_matrix_vouches_for_what_arrives(rng) -> None:
    """A port that dumps the gradients of its parameters alone."""
    model = random_gpt2(rng)
    names = ["grad.h.1.mlp.c_proj.weight", "grad.h.1.mlp.c_fc.weight", "grad.h.1.ln_2.weight"]
    found = range_of(wiring_of(model), GRAD + "h.1.attn.c_proj.bias", names)
    assert {*found.after} == {"grad.h.1.mlp.c_fc", "grad.h.1"}
    assert {*found.within} == {"grad.h.1.ln_2", "grad.h.1.attn"}


def range_of(wiring: Wiring, name: str, there: list[str]) -> Any:
    ok = [other for other in there if other != name]
    return find_range(wiring, name, order=[*wiring.reads], there=there, ok=ok)
