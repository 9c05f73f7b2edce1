"""What a comparison holds: rows in the order of the pass, tolerances, Δ of what is wrong first."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.compare.activations import GRAD, INPUTS
from npgpt.compare.comparing import MOST_KEPT, in_order
from npgpt.compare.wiring import wiring_of
from tests.compare.planted import (
    MODELS,
    compared,
    model_and_stations,
    port,
    scaled,
    wrong_in,
)


@pytest.mark.parametrize("architecture", MODELS)
def test_nothing_comes_before_what_it_is_computed_from(architecture) -> None:
    model, own = model_and_stations(architecture, "float32")
    wiring = wiring_of(model)
    order = in_order(wiring, [*own], model.params)
    assert sorted(order) == sorted(own)
    for name in order:
        for read in wiring.reads.get(name, ()):
            assert read not in own or order.index(read) < order.index(name)


def test_a_gradient_stands_right_behind_what_it_needs() -> None:
    found = compared("gpt2", "float32", port("gpt2", "float32", {}), local=False)
    names = [row.station for row in found.backward]
    at = names.index("grad.h.1.mlp")
    assert names[at + 1 : at + 3] == ["grad.h.1.mlp.c_proj.bias", "grad.h.1.mlp.c_proj.weight"]
    assert names[-2:] == ["grad.wpe.weight", "grad.wte.weight"]
    assert len(found.arriving) + len(found.gradients) == len(names)


@pytest.mark.parametrize("stored", ["float16", "bfloat16"])
@pytest.mark.parametrize("architecture", MODELS)
def test_stored_in_half_precision(architecture, stored) -> None:
    """What storing does to the stations that are given is no fault of what follows."""
    _, own = model_and_stations(architecture, "float32")
    small = {name: halved(array, stored) for name, array in own.items() if name not in INPUTS}
    assert compared(architecture, "float32", small, local=True, stored=stored).within


def halved(array: np.ndarray, stored: str) -> np.ndarray:
    """As it comes back from a file of such numbers; of bfloat16 the bits that it keeps."""
    if stored == "float16":
        return array.astype(np.float16)
    bits = np.atleast_1d(array).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).reshape(array.shape)


def test_the_first_wrong_ones_are_kept_to_be_drawn() -> None:
    dumped = port("gpt2", "float32", {"embed": scaled})
    assert compared("gpt2", "float32", dumped, local=False).apart == {}
    found = compared("gpt2", "float32", dumped, local=False, maps=True)
    assert len(found.apart) == MOST_KEPT
    assert next(iter(found.apart)) == "embed"
    np.testing.assert_allclose(found.apart["embed"], dumped["embed"] * (1 - 1 / 1.02), rtol=1e-3)


def test_argmax_is_that_of_the_whole_pass() -> None:
    """With `local` the row of the logits is right, and what they say is not."""
    dumped = port("gpt2", "float32", {"h.0": lambda x: -x})
    found = compared("gpt2", "float32", dumped, local=True)
    assert wrong_in(found) == {"h.0"}
    assert found.logits is not None
    assert found.logits.agreeing < found.logits.positions


@pytest.mark.parametrize("architecture", MODELS)
def test_gradients_alone(architecture) -> None:
    dumped = port(architecture, "float64", {})
    kept = {name: array for name, array in dumped.items() if name.startswith(GRAD)}
    assert compared(architecture, "float64", kept, local=True).within
