"""What the examples may lack."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture
def matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip('pictures need: pip install "npgpt[plot]"')
