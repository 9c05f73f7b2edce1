"""Runs an example in this process: without the second that a new one takes, or with a fault."""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from tests.examples.faults.kinds import Fault, Rewritten
from tests.examples.test_examples import EXAMPLES, TALES, WITH_A_MODEL

NOT_NEEDED = ("torch", "transformers", "matplotlib", "scipy")
SIBLINGS = {path.stem for path in EXAMPLES.glob("*.py")}


class Ran(NamedTuple):
    """What an example printed, and all that did not hold, not only the first."""

    printed: str
    failed: list[str]


Here = Callable[..., Ran]


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


def noted(checked: Callable[..., None], failed: list[str]) -> Callable[..., None]:
    """A check that does not stop the example."""

    def goes_on(*what: Any, **settings: Any) -> None:
        try:
            checked(*what, **settings)
        except AssertionError as error:
            failed.append(str(error))

    return goes_on


def run_here(
    name: str, *args: str, patch: pytest.MonkeyPatch, fault: Fault | Rewritten | None = None
) -> Ran:
    """Run an example with nothing but NumPy and npgpt; without `--model` on the one that ships."""
    path = EXAMPLES / f"{name}.py"
    source = path.read_text("utf-8")
    if isinstance(fault, Rewritten):
        assert source.count(fault.right) == 1
        source = source.replace(fault.right, fault.wrong)
    if name in WITH_A_MODEL and "--model" not in args:
        args = ("--model", *(TALES or ["random"]), *args)
    for sibling in SIBLINGS:  # one that is loaded has the right functions
        sys.modules.pop(sibling, None)
    script, failed, out = ModuleType("__main__"), list[str](), io.StringIO()
    script.__file__, script.__doc__ = str(path), ast.get_docstring(ast.parse(source))
    patch.setitem(sys.modules, "__main__", script)
    patch.setattr(sys, "argv", [str(path), *args])
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            show = importlib.import_module("show")
            for check in ("check", "claim", "same", "refused"):
                patch.setattr(show, check, noted(getattr(show, check), failed))
            if isinstance(fault, Fault):
                plant(fault, patch)
            exec(compile(source, path, "exec", dont_inherit=True), vars(script))
    except SystemExit as end:
        failed += [f"exit code {end.code}"] * bool(end.code)
    except Exception as error:  # what comes of a fault
        if fault is None:
            raise
        failed.append(str(error))
    return Ran(out.getvalue(), failed)
