"""Each known fault is named where it is planted, and no right port is accused of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npgpt.compare import fits
from npgpt.compare.activations import GRAD, INPUTS, Stations, collect_stations
from npgpt.compare.as_json import as_json
from npgpt.compare.comparing import Comparison
from npgpt.compare.differences import BEYOND
from npgpt.compare.hypotheses import hypotheses_of
from npgpt.compare.page import as_page
from npgpt.compare.report import as_text
from npgpt.compare.subject import Hypothesis
from npgpt.compare.wiring import Range
from tests.compare.planted import (
    MODELS,
    compared,
    draw,
    ids_of,
    model_and_stations,
    port,
    shifted,
)

QUICK = 3  # right dumps of each kind; ALL of them make 600
ALL = 50
PRECISIONS = ("float32", "float16", "bfloat16")


def hypotheses(architecture: str, dtype: str = "float64") -> list[Hypothesis]:
    model, own = model_and_stations(architecture, dtype)
    return [*hypotheses_of(model, *ids_of(architecture), own)]


def planted(architecture: str, h: Hypothesis) -> Stations:
    """What a port with this fault computes."""
    _, own = model_and_stations(architecture, "float64")
    options: dict[str, Any] = {"targets": h.targets, "edit": h.edit}
    with np.errstate(all="ignore"):
        made = collect_stations(h.model, *ids_of(architecture), gradients=True, **options)
    return {name: array for name, array in made.items() if name in own}


def fits_of(found: Comparison) -> dict[str, tuple[str, ...]]:
    return {where.station: where.fits for where in found.ranges}


def named_where_planted(architecture: str, every: int) -> None:
    """Also where it is not the only one that makes these numbers: of q the order of k is hidden."""
    planned = hypotheses(architecture)[::every]
    named = 0
    for h in planned:
        said = fits_of(compared(architecture, "float64", planted(architecture, h), local=False))
        if said:  # a bias of keys, for instance, shows in their own station only
            assert h.says in next(iter(said.values())), h.says
            named += 1
    assert named >= 0.9 * len(planned)


@pytest.mark.parametrize("architecture", MODELS)
def test_faults_are_named(architecture) -> None:
    named_where_planted(architecture, every=5)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", MODELS)
def test_every_fault_is_named(architecture) -> None:
    named_where_planted(architecture, every=1)


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_faults_are_named_from_the_logits_alone(architecture) -> None:
    for h in hypotheses(architecture)[::4]:
        logits = {"logits": planted(architecture, h)["logits"]}
        said = fits_of(compared(architecture, "float64", logits, local=False))
        assert not said or h.says in said["logits"], h.says


SAID = {
    "gelu instead of gelu_new": "h.0.mlp.act",
    "h.N.attn.c_proj.weight transposed": "h.0.attn",
    "h.0.ln_1.bias in all layers": "h.1.ln_1",
    "ε added to the root instead of under it": "h.0.ln_1",
    "the biases of q, k, v in the order k, v, q": "h.0.attn.q",
    "the scale 1/√d_h is missing": "h.0.attn.scores",
    "no causal mask": "h.0.attn.probs",
    "a sum over the 5 targets instead of their mean": "loss",
    "targets shifted twice: ids[t + 2] for position t": "loss",
    "targets not shifted: ids[t] for position t, of all positions": "loss",
    "wte.weight lacks the half that comes from the logits": "grad.wte.weight",
    "wte.weight lacks the half that comes from the lookup": "grad.wte.weight",
}


@pytest.mark.parametrize("says", SAID)
def test_with_local_all_that_is_wrong_is_explained(says) -> None:
    h = next(h for h in hypotheses("gpt2") if h.says == says)
    said = fits_of(compared("gpt2", "float64", planted("gpt2", h), local=True))
    assert next(iter(said)) == SAID[says]
    assert all(says in found for found in said.values())


@pytest.mark.parametrize("factor", [1.01, 0.99])
def test_scores_near_those_without_a_scale_fit_none(factor) -> None:
    """Ten times closer than the right ones: their -∞ once made the tolerance infinite."""
    model, _ = model_and_stations("gpt2", "float64")
    wrong = factor * (model.config.n_embd / model.config.n_head) ** 0.5
    faults = {f"h.{n}.attn.scores": lambda x: x * wrong for n in range(model.config.n_layer)}
    said = fits_of(compared("gpt2", "float64", port("gpt2", "float64", faults), local=False))
    assert said["h.0.attn.scores"] == ()


def test_a_fault_of_the_backward_pass_alone() -> None:
    """The derivative of another function, where a dump without `act` shows the right forward."""
    h = next(h for h in hypotheses("gpt2") if h.says == "gelu instead of gelu_new")
    right, wrong = port("gpt2", "float64", {}), "grad.h.1.mlp.c_fc"
    forward = {n: a for n, a in right.items() if not n.startswith(GRAD)}
    other = collect_stations(h.model, *ids_of("gpt2"), gradients=True, given=forward)
    dumped = right | {wrong: other[wrong]}
    del dumped["h.1.mlp.act"]
    said = fits_of(compared("gpt2", "float64", dumped, local=True))
    assert said[wrong] == (h.says,)


def test_the_transpose_of_a_gradient() -> None:
    """Only where the matrix is square has it the right shape."""
    _, own = model_and_stations("gpt2", "float32")
    name = "grad.h.1.attn.c_proj.weight"
    dumped = port("gpt2", "float32", {}) | {name: own[name].T}
    assert fits_of(compared("gpt2", "float32", dumped, local=False)) == {name: ("the transpose",)}


def test_the_token_that_a_port_takes_for_the_last_target() -> None:
    model, _ = model_and_stations("gpt2", "float64")
    targets = np.append(ids_of("gpt2")[0][1:], 7)
    dumped = collect_stations(model, *ids_of("gpt2"), gradients=True, targets=targets)
    said = fits_of(compared("gpt2", "float64", dumped, local=True))
    expected = ("the last position has a target, too: id 7",)
    assert said == {"loss": expected, "grad.logits": expected}


def test_all_three_reports_say_it() -> None:
    h = next(h for h in hypotheses("gpt2") if h.says == "gelu instead of gelu_new")
    found = compared("gpt2", "float64", planted("gpt2", h), local=False)
    text = as_text(found, lambda i: None)
    assert "made by: the activation function\n  fits exactly: gelu instead of gelu_new\n" in text
    assert "fits exactly: gelu instead of gelu_new" in as_page(found, lambda i: None)
    assert as_json(found, lambda i: None)["findings"][0]["fits"] == (h.says,)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("architecture", MODELS)
def test_another_fault_is_not_called_one_of_these(architecture, seed) -> None:
    names = draw(architecture, "float32", 2, np.random.default_rng(seed))
    faults = dict.fromkeys(names, shifted)
    found = compared(architecture, "float32", port(architecture, "float32", faults), local=True)
    assert not any(where.fits for where in found.ranges)


def accused(architecture: str, stored: str, seed: int, local: bool) -> list[str]:
    """What fits a right dump, if all of it were held to be wrong: each hypothesis is tried on it.

    Each seed is a dump of its own: numbers that rounding has moved, and some that are missing.
    """
    rng = np.random.default_rng(seed)
    _, own = model_and_stations(architecture, "float32")
    dumped = {
        name: np.asarray(array * (1 + 1e-6 * rng.uniform(-1, 1, array.shape)), np.float32)
        for name, array in own.items()
        if name not in INPUTS and (name == "logits" or rng.random() < 0.8)
    }
    dumped = {name: rounded(array, stored) for name, array in dumped.items()}
    found = compared(architecture, "float32", dumped, local=local, stored=stored)
    assert found.within
    return _held_against(architecture, found, dumped)


def rounded(array: np.ndarray, stored: str) -> np.ndarray:
    """As it comes back from a file of such numbers, each rounded to the nearest."""
    if stored != "bfloat16":
        return array.astype(stored)
    bits = np.atleast_1d(array).view(np.uint32) + np.uint32(0x8000) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).reshape(array.shape)


def _held_against(architecture: str, found: Comparison, dumped: Stations) -> list[str]:
    model, own = model_and_stations(architecture, "float32")
    rows = {row.station: row._replace(verdict=BEYOND) for row in found.rows}
    known = fits.Known(model, *ids_of(architecture), own, rows, dumped)
    everywhere = [Range(name, [], [], [], [], []) for name in rows]
    with np.errstate(invalid="ignore"):
        return [says for where in fits.explained(known, everywhere) for says in where.fits]


@pytest.mark.parametrize("stored", PRECISIONS)
@pytest.mark.parametrize("architecture", MODELS)
def test_a_right_dump_is_not_accused(architecture, stored) -> None:
    for seed in range(QUICK):
        assert accused(architecture, stored, seed, bool(seed % 2)) == []


@pytest.mark.slow
@pytest.mark.parametrize("stored", PRECISIONS)
@pytest.mark.parametrize("architecture", MODELS)
def test_no_right_dump_is_accused(architecture, stored) -> None:
    for seed in range(QUICK, ALL):
        assert accused(architecture, stored, seed, bool(seed % 2)) == []
