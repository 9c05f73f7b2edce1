"""A fault planted in npgpt makes the example that claims the opposite fail.

The faults are in `faults.py`. Each replaces one thing of npgpt wherever it is used; the example
then runs in this process.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.examples.faults import FAULTS, Fault
from tests.examples.test_examples import EXAMPLES, TALES

ROWS = [(script, fault) for script, faults in FAULTS.items() for fault in faults]


def plant(fault: Fault, patch: pytest.MonkeyPatch) -> None:
    """Put the wrong one in the place of the right one: in its home, and wherever it is imported."""
    path, _, name = fault.target.rpartition(".")
    try:
        home: Any = importlib.import_module(path)
    except ModuleNotFoundError:  # an attribute of a class
        place, _, of = path.rpartition(".")
        home = getattr(importlib.import_module(place), of)
    right = vars(home)[name]
    wrong = fault.wrong(right)
    patch.setattr(home, name, wrong)
    for module in [m for n, m in sys.modules.items() if n.startswith("npgpt")]:
        for where, value in list(vars(module).items()):
            if value is right:
                patch.setattr(module, where, wrong)
            elif isinstance(value, dict) and not where.startswith("__"):
                for key, pair in value.items():  # ACTIVATIONS: forward and backward
                    if isinstance(pair, tuple) and any(each is right for each in pair):
                        swapped = tuple(wrong if each is right else each for each in pair)
                        patch.setitem(value, key, swapped)


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A patch under which examples are imported anew, and forgotten afterwards."""
    siblings = {path.stem for path in EXAMPLES.glob("*.py")}
    kept = {name: sys.modules.pop(name) for name in siblings & sys.modules.keys()}
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    yield monkeypatch
    for name in siblings & sys.modules.keys():
        del sys.modules[name]
    sys.modules.update(kept)


def run_here(script: str, args: tuple[str, ...], patch: pytest.MonkeyPatch) -> list[str]:
    """Run an example in this process, in English: all that does not hold, not only the first."""
    path, failed = str(EXAMPLES / f"{script}.py"), []
    patch.setattr(sys, "argv", [path, "--lang", "en", *args])
    show = importlib.import_module("show")

    def noted(checked: Any) -> Any:
        def goes_on(*what: Any) -> None:
            try:
                checked(*what)
            except AssertionError as error:
                failed.append(str(error))

        return goes_on

    for name in ("check", "claim", "same", "refused"):
        patch.setattr(show, name, noted(getattr(show, name)))
    try:
        runpy.run_path(path, run_name="__main__")
    except AssertionError as error:
        failed.append(str(error))
    except SystemExit as end:
        failed += [f"exit code {end.code}"] * bool(end.code)
    return failed


@pytest.mark.parametrize(
    ("script", "fault"), ROWS, ids=[f"{script}-{fault.breaks}" for script, fault in ROWS]
)
def test_a_fault_breaks_the_claim(
    script: str, fault: Fault, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "weights/tales" in fault.args and not TALES:
        pytest.skip("weights/tales is not here")
    plant(fault, patch)
    failed = run_here(script, fault.args, patch)
    assert any(fault.breaks in what for what in failed), failed


@pytest.mark.parametrize("script", FAULTS)
def test_without_a_fault_every_claim_holds(
    script: str, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    args = FAULTS[script][-1].args
    if "weights/tales" in args and not TALES:
        pytest.skip("weights/tales is not here")
    assert run_here(script, args, patch) == []
