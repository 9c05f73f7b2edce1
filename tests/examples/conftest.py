"""What the examples may lack, and how they run: in an interpreter of their own, or in this one."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.examples.here import NOT_NEEDED, SIBLINGS, Here, run_here
from tests.examples.test_examples import EXAMPLES, WITH_A_MODEL, run


@pytest.fixture
def matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip('pictures need: pip install "npgpt[plot]"')


@pytest.fixture(scope="session")
def output(request: pytest.FixtureRequest) -> Iterator[Callable[[str], str]]:
    """What a script prints with nothing but NumPy, tiktoken and safetensors beside npgpt.

    All that the selected tests ask for is started at once, a script for each processor.
    """

    def printed(name: str) -> str:
        args = ["--model", "random"] if name in WITH_A_MODEL else []
        done = run(name, *args, absent=NOT_NEEDED)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    pool = ThreadPoolExecutor(os.cpu_count())

    @functools.cache
    def start(name: str) -> Future[str]:
        return pool.submit(printed, name)

    for item in request.session.items:
        if isinstance(item, pytest.Function) and "output" in item.fixturenames:
            start(item.callspec.params["name"])
    yield lambda name: start(name).result()
    pool.shutdown(cancel_futures=True)


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
