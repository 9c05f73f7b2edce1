"""Several faults at once: `--local` names each of them and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compare.planted import MODELS, compared, draw, port, wrong_in

QUICK, ALL = 8, 50  # cases of each architecture


def named_as_planted(architecture: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtype = ("float32", "float64")[seed % 2]
    faults = draw(architecture, dtype, int(rng.integers(2, 4)), rng)
    found = compared(architecture, dtype, port(architecture, dtype, faults), local=True)
    said = [(where.station, where.within, where.follows) for where in found.ranges]
    assert wrong_in(found) == {*faults}
    assert sorted(said) == sorted((name, [], []) for name in faults)


@pytest.mark.parametrize("seed", range(QUICK))
@pytest.mark.parametrize("architecture", MODELS)
def test_pairs_and_triples(architecture, seed) -> None:
    named_as_planted(architecture, seed)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", MODELS)
def test_all_pairs_and_triples(architecture) -> None:
    for seed in range(QUICK, ALL):
        named_as_planted(architecture, seed)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("architecture", MODELS)
def test_a_port_without_a_fault(architecture, dtype) -> None:
    assert (
        wrong_in(compared(architecture, dtype, port(architecture, dtype, {}), local=True)) == set()
    )
