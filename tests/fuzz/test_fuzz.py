"""A first stretch of the cases of every kind, and faults that were there once, planted again."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from npgpt.files import gguf_reader
from tests.fuzz.__main__ import KINDS, Case, numbers_of, run_cases

CASES = 40  # of each kind


def failures(kind: str, root: Any, cases: int = CASES) -> list[Case]:
    """Those of the first cases of a kind that failed."""
    return [c for c in run_cases(islice(numbers_of(kind), cases), root) if c.outcome.failure]


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
def test_broken_files_are_refused_or_read_rightly(kind, tmp_path) -> None:
    for case in failures(kind, tmp_path):
        pytest.fail(f"python -m tests.fuzz --cases 1 --seed {case.number}: {case.outcome.failure}")


def test_a_case_follows_from_its_number(tmp_path) -> None:
    for folder in (first := tmp_path / "a", second := tmp_path / "b"):
        folder.mkdir()
    kinds = ("index", "vocab.txt", "safetensors", "npz")
    numbers = [number for kind in kinds for number in islice(numbers_of(kind, 7), 4)]
    changes = [[case.change for case in run_cases(numbers, root)] for root in (first, second)]
    assert changes[0] == changes[1]
    assert len({change.what for change in changes[0]}) > len(numbers) // 2


def test_a_planted_fault_is_found(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(gguf_reader, "_by_name", lambda what, pairs: dict(pairs))
    cases = run_cases(islice(numbers_of("gguf-gpt2"), 10 * CASES), tmp_path)
    fault = "AssertionError: was taken, but must be refused"
    assert any(case.outcome.failure == fault for case in cases)
