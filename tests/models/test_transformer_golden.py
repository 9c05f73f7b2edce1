"""The encoder-decoder against golden values made by transformers in float64; no torch needed.

tests/goldens/make_transformer.py tells how the files were made.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from npgpt.models.transformer.config import TransformerConfig, param_shapes
from npgpt.models.transformer.model import Transformer
from npgpt.ops.label_smoothing import label_smoothing_backward, label_smoothing_forward
from tests.goldens.make_transformer import SMOOTHING
from tests.gradcheck import relative_error
from tests.models.tiny_transformer import joined

GOLDENS = sorted((Path(__file__).parents[1] / "goldens").glob("transformer-*.safetensors"))


def load(path):
    """The model, and all other tensors of the file."""
    with safe_open(path, framework="numpy") as file:
        config = TransformerConfig.from_dict(json.loads(file.metadata()["config"]))
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    params = {name: tensors.pop("param." + name) for name in param_shapes(config)}
    assert not any(name.startswith("param.") for name in tensors)
    return Transformer(config, params), tensors


def given(golden):
    return (golden[name] for name in ("ids", "decoder_ids", "mask", "decoder_mask"))


def test_there_are_three() -> None:
    names = [path.stem.removeprefix("transformer-") for path in GOLDENS]
    assert names == ["bart", "marian-two-tables", "marian"]


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_logits_loss_and_every_gradient(path) -> None:
    model, golden = load(path)
    real = golden["decoder_mask"] == 1
    logits, saved = model.forward(*given(golden))
    loss, saved_loss = label_smoothing_forward(logits, golden["targets"], smoothing=SMOOTHING)
    grads = model.backward(label_smoothing_backward(1.0, saved_loss), saved)
    assert relative_error(logits[real], golden["logits"][real]) < 1e-12
    assert float(loss) == pytest.approx(float(golden["loss"]), rel=1e-12)
    want = {name: golden["grad." + name] for name in grads}
    assert len(want) == sum(name.startswith("grad.") for name in golden)
    for name, grad in joined(grads).items():
        assert relative_error(grad, joined(want)[name]) < 1e-12, name


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_float32_comes_as_close_as_it_can(path) -> None:
    exact, golden = load(path)
    model = Transformer(exact.config, {n: p.astype(np.float32) for n, p in exact.params.items()})
    real = golden["decoder_mask"] == 1
    logits = model(*given(golden))
    assert logits.dtype == np.float32
    assert relative_error(logits[real], golden["logits"][real]) < 1e-5
