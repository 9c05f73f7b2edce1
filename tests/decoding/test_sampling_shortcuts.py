"""What sampling leaves out for speed changes no token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npgpt.decoding.constraints import NEUTRAL, Step, constrained, constrains
from npgpt.decoding.sampling import Sampling, next_token_probs, sample, sample_rows
from npgpt.models.generation import Generation


def probs_by_a_full_sort(logits, temperature, top_k, top_p):
    scaled = logits.astype(np.float64)
    scaled -= scaled.max()
    probs = np.exp(scaled / temperature)
    order = np.argsort(-scaled, kind="stable")
    if top_k:
        probs[order[top_k:]] = 0
    probs /= probs.sum()
    if top_p is not None and top_p < 1:
        before = np.cumsum(probs[order]) - probs[order]
        probs[order[1:][before[1:] >= top_p]] = 0
        probs /= probs.sum()
    return probs


@pytest.mark.parametrize("top_k", [None, 0, 1, 7, 1000])
@pytest.mark.parametrize("top_p", [None, 0.0, 0.3, 0.95, 0.999999, 1.0])
def test_the_same_bits_as_with_a_full_sort(rng: np.random.Generator, top_k, top_p) -> None:
    for round_off in range(20):
        logits = rng.standard_normal(200).astype(np.float32) * 3
        if round_off % 2:  # many equals
            logits = np.round(logits)
            logits[rng.random(200) < 0.3] = -np.inf
        want = probs_by_a_full_sort(logits, 0.8, top_k, top_p)
        got = next_token_probs(logits, temperature=0.8, top_k=top_k, top_p=top_p)
        assert got.tolist() == want.tolist()


@pytest.mark.parametrize(
    "settings", [Sampling(0.0, None, None), Sampling(1.0, None, None), Sampling(0.7, 20, 0.9)]
)
def test_rows_together_draw_what_they_draw_one_by_one(rng, settings: Sampling) -> None:
    logits = rng.standard_normal((64, 300)).astype(np.float32)
    alone = np.random.default_rng(5)
    want = [sample(row, alone, **settings._asdict()) for row in logits]
    assert sample_rows(logits, np.random.default_rng(5), settings).tolist() == want


@pytest.mark.parametrize("row", [[-np.inf] * 3, [0.0, np.nan, 1.0], [0.0, np.inf, 1.0]])
def test_one_broken_row_among_others_is_noticed(row) -> None:
    logits = np.array([[1.0, 2.0, 3.0], row])
    with pytest.raises(ValueError, match=r"no token may come|not finite"):
        sample_rows(logits, np.random.default_rng(0), Sampling(0.0, None, None))


class Recorder:
    """Rules that say which of them are read."""

    def __init__(self, rules: Generation) -> None:
        self.rules, self.read = rules, set[str]()

    def __getattr__(self, name: str):
        self.read.add(name)
        return getattr(self.rules, name)


def test_rules_that_constrain_nothing_are_known_as_such() -> None:
    assert not constrains(Generation())
    rules = Recorder(Generation())
    scores = np.arange(5.0)
    step = Step(np.array([1]), np.array([1]), begin=1, new=0, last=True)
    assert (constrained(scores, step, rules) == scores).all()
    assert rules.read == NEUTRAL.keys()


@pytest.mark.parametrize("name", NEUTRAL)
def test_any_other_value_is_seen(name: str) -> None:
    value: Any = 0.5 if NEUTRAL[name] == 1.0 else 3 if NEUTRAL[name] == 0 else [3]
    assert constrains(Generation(**{name: value}))
