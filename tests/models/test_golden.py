"""Every architecture against golden values made by transformers in float64; no torch needed.

`tests/goldens/__init__.py` says what the files hold and how they are made.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npgpt.ops.layer_norm import layer_norm_backward
from npgpt.ops.rms_norm import rms_norm_backward
from tests.goldens import ARCHITECTURES, FILES, counted, load
from tests.gradcheck import check_close, relative_error

FLOAT32 = {"bert": 1e-5, "gpt2": 2e-5, "llama": 2e-5, "transformer": 1e-4}
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def both(path: Path, dtype: Any = np.float64) -> tuple[dict[str, Any], dict[str, Any]]:
    """What npgpt computes, and what transformers did."""
    architecture = ARCHITECTURES[path.stem.partition("-")[0]]
    model, given, want = load(path, dtype)
    got = architecture.computed(model, given)
    return counted(architecture, given, got), counted(architecture, given, want)


def test_every_file_is_of_a_case() -> None:
    names = [f"{kind}-{case}" for kind, module in ARCHITECTURES.items() for case in module.CASES]
    assert sorted(path.stem for path in FILES) == sorted(names)


@each_file
def test_outputs_and_every_gradient(path) -> None:
    check_close(*both(path), 1e-12)


@each_file
def test_float32_comes_as_close_as_it_can(path) -> None:
    got, want = both(path, np.float32)
    check_close(got, want, FLOAT32[path.stem.partition("-")[0]], np.float32)
    for name in want.keys() & {"logits", "hidden", "pooled"}:
        assert relative_error(got[name], want[name]) < 1e-5, name


@each_file
def test_a_gain_without_a_gradient_is_named(path, monkeypatch) -> None:
    """NaN is never greater than another error, so the largest error alone does not show it."""
    for backward in (layer_norm_backward, rms_norm_backward):

        def spoiled(dy, saved, backward=backward):
            dx, dweight, *rest = backward(dy, saved)
            return dx, np.full_like(dweight, np.nan), *rest

        for name, module in [*sys.modules.items()]:
            if name.startswith("npgpt.models.") and hasattr(module, backward.__name__):
                monkeypatch.setattr(module, backward.__name__, spoiled)
    with pytest.raises(AssertionError, match=r"^grad\.\S*(ln_|[Nn]orm)\S* is not finite"):
        check_close(*both(path), 1e-12)
