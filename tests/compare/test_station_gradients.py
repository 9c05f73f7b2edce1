"""Every station and its gradient, with every option that the models are tested with, live."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.compare.activations import Stations, collect_stations, seen
from npgpt.compare.differences import measured_by, norm_of
from npgpt.compare.hf_modules import names_of
from npgpt.compare.reference import observed
from tests.goldens import ARCHITECTURES
from tests.models.test_against_hf import CASES, SIZES, each_case, ours

SEED = 4  # of a model whose attention is not saturated: there rounding alone comes to 1e-11

pytestmark = [pytest.mark.hf, pytest.mark.usefixtures("hf")]


@each_case(CASES)
def test_float64(kind, case) -> None:
    """One text, as long as the longest of the case; only models with a loss have gradients."""
    architecture, (options, lengths, others) = ARCHITECTURES[kind], CASES[kind][case]
    rng, options = np.random.default_rng(SEED), {**SIZES[kind], **options}
    T = max(*lengths, 2)
    vocab = options.get("decoder_vocab_size", options.get("vocab_size", 19))
    ids = rng.integers(3, options.get("vocab_size", 19), T)
    target_ids = rng.integers(3, vocab, max(others)) if kind == "transformer" else None
    with architecture.in_float64():
        reference = architecture.reference_model(options, SEED)
        model = ours(architecture, reference)
        model_type = reference.config.model_type
        names = names_of(model_type, model.params)
        gradients = options.get("kind") != "BertModel"
        want = observed(reference, model_type, names, ids, target_ids, gradients=gradients)
    got = collect_stations(model, ids, target_ids, gradients=gradients)
    assert {*want} == {*got} - {"ids", "target_ids"}
    assert {name: error for name in want if not (error := apart(name, got, want)) < 1e-11} == {}


def apart(name: str, got: Stations, want: Stations) -> float:
    """The relative error; that of the keys' bias, which is 0 but for rounding, of their weight."""
    a, b, base = seen(name, got[name], got), seen(name, want[name], got), measured_by(name)
    assert a.shape == b.shape
    size = norm_of(seen(base, want[base], got))
    return norm_of(a - b) / (size or 1.0)
