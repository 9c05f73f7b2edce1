"""What other systems do, shown by stand-ins; more of these stand beside what they test."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import npgpt
from npgpt.ops.project import project_forward
from tests.test_layering import imports_of

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(("system", "warned"), [("darwin", False), ("linux", True)])
def test_false_alarms_of_accelerate_are_silenced_and_results_are_not(
    monkeypatch, system, warned
) -> None:
    """A product that overflows stands for one that Accelerate merely says does (numpy#28687)."""
    monkeypatch.setattr(sys, "platform", system)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        importlib.reload(npgpt)
        y, _ = project_forward(np.full((1, 1), 1e300), np.full((1, 1), 1e300))
        np.full((1, 1), 1e300) @ np.full((1, 1), 1e300)  # somebody else's product
    assert np.isinf(y).all()
    told = {Path(each.filename).name: str(each.message) for each in caught}
    assert ("few_rows.py" in told) is warned
    assert told[Path(__file__).name] == "overflow encountered in matmul"


def test_the_lock_of_free_threaded_python_fails_no_test() -> None:
    text = "The global interpreter lock (GIL) has been enabled to load module 'regex._regex', which"
    warnings.warn(text, RuntimeWarning, stacklevel=1)
    with pytest.raises(RuntimeWarning, match="another"):
        warnings.warn("another", RuntimeWarning, stacklevel=1)


def test_what_windows_lacks_is_imported_where_it_is_used() -> None:
    """So that a test without it can be skipped and a benchmark can do without."""
    lacking = {"resource", "fcntl", "pwd", "grp", "termios", "pty", "readline"}
    files = [
        path for name in ("npgpt", "examples", "tests") for path in (ROOT / name).rglob("*.py")
    ]
    found = [
        (path.name, each.name)
        for path in files
        for each in imports_of(path.read_text(encoding="utf-8"), "")
        if each.name.split(".")[0] in lacking and not each.lazy
    ]
    assert found == []
