"""BERT against golden values made by transformers in float64; no torch needed.

tests/goldens/make_bert.py tells how the files were made.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from npgpt.models.bert.config import BERTConfig, param_shapes
from npgpt.models.bert.model import BERT
from tests.models.tiny_bert import worst

GOLDENS = sorted((Path(__file__).parents[1] / "goldens").glob("bert-*.safetensors"))


def load(path, dtype=np.float64):
    """The model, the input for `forward`, and all other tensors of the file."""
    with safe_open(path, framework="numpy") as file:
        config = BERTConfig.from_dict(json.loads(file.metadata()["config"]))
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    mlm_head = "logits" in tensors
    shapes = param_shapes(config, pooler=not mlm_head, mlm_head=mlm_head)
    params = {name: tensors.pop("param." + name).astype(dtype) for name in shapes}
    assert not any(name.startswith("param.") for name in tensors)
    given = {name: tensors.pop(name) for name in ("ids", "attention_mask", "token_type_ids")}
    return BERT(config, params), given, tensors


def computed(model, given, golden):
    """What npgpt computes of all that the file holds."""
    out = model.forward(**given)
    if "logits" in golden:
        loss, grads = model.loss_and_grads(targets=golden["targets"], **given)
        got: dict[str, Any] = {"logits": out.logits, "loss": loss}
    else:
        grads = model.backward(
            None, out.saved, dhidden=golden["dhidden"], dpooled=golden["dpooled"]
        )
        got = {"hidden": out.hidden, "pooled": out.pooled}
    return got | {"grad." + name: grad for name, grad in grads.items()}


def results(golden):
    """What came out, without what went in."""
    return {n: a for n, a in golden.items() if n not in ("targets", "dhidden", "dpooled")}


def test_there_are_three() -> None:
    assert [path.stem for path in GOLDENS] == ["bert-masked", "bert-pooled", "bert-untied"]


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_outputs_and_every_gradient(path) -> None:
    model, given, golden = load(path)
    got = computed(model, given, golden)
    for name, value in got.items():
        assert np.shape(value) == golden[name].shape, name
    assert worst(got, results(golden)) < (1e-12, "")


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_float32_comes_as_close_as_it_can(path) -> None:
    model, given, golden = load(path, np.float32)
    golden = {n: a.astype(np.float32) if a.dtype == np.float64 else a for n, a in golden.items()}
    got = computed(model, given, golden)
    assert {value.dtype for value in got.values()} == {np.dtype(np.float32)}
    assert worst(got, results(golden)) < (1e-5, "")
