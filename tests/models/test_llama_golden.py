"""Llama against golden values made by transformers in float64; no torch needed.

tests/goldens/make_llama.py tells how the files were made.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from npgpt.models.llama.config import LlamaConfig, param_shapes
from npgpt.models.llama.model import Llama
from tests.gradcheck import relative_error

GOLDENS = sorted((Path(__file__).parents[1] / "goldens").glob("llama-*.safetensors"))


def load(path):
    """The model, and all other tensors of the file."""
    with safe_open(path, framework="numpy") as file:
        config = LlamaConfig.from_dict(json.loads(file.metadata()["config"]))
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    params = {name: tensors.pop("param." + name) for name in param_shapes(config)}
    assert not any(name.startswith("param.") for name in tensors)
    return Llama(config, params), tensors


def test_there_are_two() -> None:
    assert [path.stem for path in GOLDENS] == ["llama-llama3", "llama-tied"]


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_logits_loss_and_every_gradient(path) -> None:
    model, golden = load(path)
    real = golden["attention_mask"] == 1
    logits = model(golden["ids"], golden["attention_mask"])
    loss, grads = model.loss_and_grads(golden["ids"], golden["targets"], golden["attention_mask"])
    assert relative_error(logits[real], golden["logits"][real]) < 1e-12
    assert float(loss) == pytest.approx(float(golden["loss"]), rel=1e-12)
    assert {"grad." + name for name in grads} == {n for n in golden if n.startswith("grad.")}
    for name, grad in grads.items():
        assert relative_error(grad, golden["grad." + name]) < 1e-12, name


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_float32_comes_as_close_as_it_can(path) -> None:
    exact, golden = load(path)
    model = Llama(exact.config, {n: p.astype(np.float32) for n, p in exact.params.items()})
    real = golden["attention_mask"] == 1
    logits = model(golden["ids"], golden["attention_mask"])
    assert logits.dtype == np.float32
    assert relative_error(logits[real], golden["logits"][real]) < 1e-5
