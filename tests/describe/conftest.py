"""Fixtures that run `python -m npgpt.describe` in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from npgpt.describe import command


@pytest.fixture
def run(run_command) -> Callable[..., tuple[int, str, str]]:
    """Exit code, stdout, stderr."""
    return partial(run_command, command)


@pytest.fixture
def described(run) -> Callable[..., dict[str, Any]]:
    """The object that `--json` prints."""

    def call(*argv: object) -> dict[str, Any]:
        code, out, err = run(*argv, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call


@pytest.fixture
def refused(run) -> Callable[..., str]:
    """The one sentence on stderr, with exit code 2."""

    def call(*argv: object) -> str:
        code, out, err = run(*argv)
        assert (code, out, err.count("\n")) == (2, "", 1)
        return err

    return call


@pytest.fixture
def write_config(tmp_path) -> Callable[[object], Path]:
    """Writes a config.json, of an object or of this very text."""

    def write(raw: object) -> Path:
        path = tmp_path / "config.json"
        path.write_text(raw if isinstance(raw, str) else json.dumps(raw), encoding="utf-8")
        return path

    return write
