"""The command run in this process, and small models to run it on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npgpt.trace import command as trace
from tests.builders.gpt2 import write_byte_vocabulary, write_tiny_gpt2
from tests.builders.llama import random_llama


def write_llama(folder: Path, **options: Any) -> Path:
    """V 257, context 32, H 6, H_kv 3, d_h 4, L 2, F 10, unless the options say otherwise."""
    sizes = {"vocab_size": 257, "max_position_embeddings": 32, **options}
    random_llama(np.random.default_rng(3), np.float32, **sizes).save_pretrained(folder)
    write_byte_vocabulary(folder)
    return folder


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, Path]:
    """A GPT-2 (V 257, context 32, H 3, L 2), a Llama, and one with a tied head."""
    new = tmp_path_factory.mktemp
    return {
        "gpt2": write_tiny_gpt2(new("gpt2")),
        "llama": write_llama(new("llama")),
        "tied llama": write_llama(new("tied"), tie_word_embeddings=True),
    }


@pytest.fixture
def gpt2(folders) -> Path:
    return folders["gpt2"]


@pytest.fixture(params=["llama", "tied llama"])
def llama(request, folders) -> Path:
    return folders[request.param]


@pytest.fixture(params=["gpt2", "llama", "tied llama"])
def folder(request, folders) -> Path:
    return folders[request.param]


@pytest.fixture
def run(run_command):
    """Run the command on a model: exit code, stdout, stderr."""
    return lambda model, *argv: run_command(trace, *argv, "--model", model)


@pytest.fixture
def traced(run):
    """What `--json` says."""

    def call(model: object, *argv: object) -> dict[str, Any]:
        code, out, err = run(model, *argv, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call
