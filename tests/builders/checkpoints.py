"""A GPT-2 of a few hundred numbers, and ways to write it wrongly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npgpt.files.safetensors_file import read_tensors, write_tensors
from npgpt.models.gpt2.checkpoint import load_checkpoint
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from tests.builders.gpt2 import tiny_gpt2_config

SMALL = tiny_gpt2_config(
    vocab_size=11,
    n_positions=5,
    n_embd=6,
    n_head=2,
    n_inner=10,
    bos_token_id=None,
    eos_token_id=None,
)
UNTIED = replace(SMALL, tie_word_embeddings=False)


def random_params(config: GPT2Config = SMALL, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """All parameters random, biases and gains too, so that none can stand for another."""
    rng = np.random.default_rng(1706)
    return {
        name: rng.standard_normal(shape).astype(dtype)
        for name, shape in param_shapes(config).items()
    }


def write_checkpoint(
    folder: Path, tensors: Mapping[str, np.ndarray], config: GPT2Config = SMALL, **changes: Any
) -> Path:
    """A folder with these tensors under these names, and config.json with these changes."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = {**config.to_dict(), **changes}
    (folder / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    write_tensors(folder / "model.safetensors", tensors)
    return folder


def change(
    folder: Path, tensors: Mapping[str, np.ndarray | None] | None = None, **settings: Any
) -> Path:
    """The folder, with tensors added, replaced or (None) removed, and settings of config.json."""
    changed = {**read_tensors(folder / "model.safetensors"), **(tensors or {})}
    write_tensors(folder / "model.safetensors", {n: a for n, a in changed.items() if a is not None})
    path = folder / "config.json"
    raw = {**json.loads(path.read_text(encoding="utf-8")), **settings}
    path.write_text(json.dumps(raw), encoding="utf-8")
    return folder


def write_raw(path: Path, header: Any, data: bytes, length: int | None = None) -> Path:
    """A safetensors file byte by byte: the header as an object or as text, and its length."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + text + data)
    return path


def assert_same(params: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> None:
    """Equal names, values, shapes and dtypes."""
    assert params.keys() == wanted.keys()
    for name, array in wanted.items():
        assert params[name].dtype == array.dtype, name
        np.testing.assert_array_equal(params[name], array, err_msg=name, strict=True)


def refusal(folder: Path) -> str:
    """The one sentence with which the folder's tensors are refused."""
    with pytest.raises(ValueError, match=r"model\.safetensors") as caught:
        load_checkpoint(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)
