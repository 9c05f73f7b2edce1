"""What the examples may lack, and how they run in this process."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Iterator

import pytest

from tests.examples.here import NOT_NEEDED, SIBLINGS, Here, run_here
from tests.examples.test_examples import EXAMPLES


@pytest.fixture
def matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip('pictures need: pip install "npgpt[plot]"')


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    """Runs an example in this process; the modules that it loads are forgotten afterwards."""
    kept = {name: sys.modules[name] for name in SIBLINGS & sys.modules.keys()}
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    for package in NOT_NEEDED:
        monkeypatch.setitem(sys.modules, package, None)
    yield functools.partial(run_here, patch=monkeypatch)
    for name in SIBLINGS & sys.modules.keys():
        del sys.modules[name]
    sys.modules.update(kept)
