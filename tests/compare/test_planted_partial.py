"""One fault, and a dump with gaps: the range that is named contains it."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.compare.activations import GRAD, INPUTS
from npgpt.compare.report import as_text
from tests.compare.planted import MODELS, compared, draw, port, scaled

CASES = 13  # of each architecture


@pytest.mark.parametrize("seed", range(CASES))
@pytest.mark.parametrize("architecture", MODELS)
def test_the_range_contains_the_fault(architecture, seed) -> None:
    rng = np.random.default_rng(seed)
    dtype = ("float32", "float64")[seed % 2]
    while True:
        ((name, fault),) = draw(architecture, dtype, 1, rng).items()
        dumped = port(architecture, dtype, {name: fault})
        share = rng.uniform(0.02, 0.7)
        kept = {n: a for n, a in dumped.items() if rng.random() < share}
        if not {*kept} - {*INPUTS}:
            continue
        found = compared(architecture, dtype, kept, local=False)
        if found.ranges:  # else nothing that the fault reaches was kept
            break
    (where,) = found.ranges
    assert name in {where.station, *where.within}
    assert {*where.dump} <= {*where.within} - {*kept}
    assert not {*where.within} & {*kept}


@pytest.mark.parametrize("architecture", MODELS)
def test_logits_alone(architecture) -> None:
    """Argmax, KL, and where to go on; never a guess at what is nearest."""
    name = "encoder.layers.1" if architecture == "bart" else "embed"
    logits = port(architecture, "float32", {name: scaled})["logits"]
    found = compared(architecture, "float32", {"logits": logits}, local=False)
    text = as_text(found, lambda _: None)
    assert "wrong: somewhere up to logits; dump " in text
    assert "embed" in text.split("; dump ")[1].split("to narrow")[0]
    assert "made by" not in text
    assert "argmax: the same at" in text
    assert "KL divergence: mean" in text


def test_a_block_is_named_with_what_would_narrow_it() -> None:
    dumped = port("gpt2", "float32", {"h.1.attn.k": scaled})
    kept = {name: dumped[name] for name in ("embed", "h.0", "h.1", "logits")}
    text = as_text(compared("gpt2", "float32", kept, local=False), lambda _: None)
    wanted = "wrong: somewhere after h.0 and up to h.1; dump h.1.attn, h.1.mlp to narrow it\n"
    assert wanted in text


def test_what_follows_from_a_gap_is_said(rng) -> None:
    """The activation is wrong and not dumped: the gradient of what follows it is no other fault."""
    dumped = port("gpt2", "float32", {"h.1.mlp.act": scaled})
    del dumped["h.1.mlp.act"]
    found = compared("gpt2", "float32", dumped, local=True)
    assert found.ranges[0].station == "h.1.mlp"
    assert "grad.h.1.mlp.c_proj.weight" in {where.station for where in found.ranges}
    assert all(where.follows == ["h.1.mlp"] for where in found.ranges[1:])
    text = as_text(found, lambda _: None)
    assert "may only follow from h.1.mlp" in text


def test_gradients_follow_from_the_stations() -> None:
    dumped = port("llama", "float32", {"layers.0.mlp": scaled})
    found = compared("llama", "float32", dumped, local=False)
    assert [where.station for where in found.ranges] == ["layers.0.mlp"]
    assert "so what is wrong of them may only follow; --local" in " ".join(
        as_text(found, lambda _: None).split()
    )


def test_the_way_back_of_a_gradient_says_what_makes_it() -> None:
    dumped = port("gpt2", "float64", {GRAD + "h.0.attn": scaled})
    found = compared("gpt2", "float64", dumped, local=False)
    assert found.ranges[0].station == "grad.h.0.attn"
    assert found.ranges[0].after == ["grad.h.0", "grad.h.0.ln_2"]
    (cause,) = found.ranges[0].made_by
    assert cause.startswith("back through h.0.ln_2: the norm's backward")
    assert "back through h.0: goes on unchanged" in cause
