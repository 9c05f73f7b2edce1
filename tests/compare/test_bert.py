"""`python -m npgpt.compare` on a BERT: what it takes and says."""

from __future__ import annotations

import importlib.util
import json
import re

import numpy as np
import pytest

from npgpt.compare.activations import collect_stations
from npgpt.compare.station_parts import what_makes
from npgpt.files.safetensors_file import read_tensors
from npgpt.models.bert.model import BERT
from tests.compare.ports import run
from tests.models.tiny_bert import random_bert
from tests.text.tiny_bert_folder import PIECES, write_tiny_bert

IDS = np.array([2, 5, 6, 8, 9, 5, 3])
LAYER = "encoder.layer.1."
needs_tokenizers = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason="needs: pip install 'npgpt[bert]'"
)


@pytest.fixture
def model(rng, tmp_path) -> BERT:
    model = random_bert(rng, np.float32)
    model.save_pretrained(tmp_path)
    return model


@needs_tokenizers
def test_text_goes_through_the_word_pieces(tmp_path):
    folder, dump = write_tiny_bert(tmp_path / "model"), tmp_path / "port.safetensors"
    code, out, err = run("The cats sat.", "--model", folder, "--dump", dump, "--gradients")
    assert (code, out) == (0, "")
    assert "wrote 56 arrays" in err
    assert read_tensors(dump)["ids"].tolist() == [2, 5, 6, 7, 8, 13, 3]
    code, out, err = run("--model", folder, "--against", dump, "--gradients")
    assert (code, err) == (0, "")
    assert "all 13 stations are within tolerance\nall 42 gradients are within tolerance\n" in out
    assert "likeliest at position 6:" in out
    shown = dict(re.findall(r"(\d+) +'(\S+)'", out.split("likeliest")[1]))
    assert shown
    assert all(PIECES[int(token)] == piece for token, piece in shown.items())
    assert run("The cat.", "--model", folder, "--against", dump)[0] == 2


def test_the_loss_asks_for_every_token_itself(model):
    stations = collect_stations(model, IDS, gradients=True)
    loss, grads = model.loss_and_grads(IDS, IDS)
    assert stations["loss"] == pytest.approx(loss, rel=1e-6)
    assert {name for name, param in grads.items() if not param.any()} == {
        "pooler.dense.weight",
        "pooler.dense.bias",
    }
    for name, grad in grads.items():
        np.testing.assert_allclose(stations[f"grad.{name}"], grad, rtol=2e-4, atol=1e-6)


def test_every_station_says_what_makes_it(model):
    names = [*collect_stations(model, IDS, gradients=False), "loss"]
    parts = {name: what_makes("bert", name) for name in names if name != "ids"}
    assert len(set(parts.values())) == len(parts) - 5  # two layers of the same kind
    assert "causal" in parts[LAYER + "attention.self.probs"]
    assert "not shifted" in parts["loss"]


def test_without_an_mlm_head_there_is_no_loss(rng, tmp_path):
    random_bert(rng, np.float32, mlm_head=False).save_pretrained(tmp_path)
    arguments = ("--ids", "1 2 3", "--model", tmp_path, "--dump", tmp_path / "a.safetensors")
    code, out, err = run(*arguments, "--gradients")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "no MLM head (cls.predictions.…), so there is no loss" in err
    assert run(*arguments)[0] == 0
    code, out, _ = run("--model", tmp_path, "--against", tmp_path / "a.safetensors", "--json")
    found = json.loads(out)
    assert (code, found["logits"], found["missing"]) == (0, None, [])
    assert found["stations"][-1]["station"] == "pooler"


def test_a_target_is_refused(model, tmp_path):
    for option in ("--target", "--target-ids"):
        code, _, err = run("--ids", "1 2", option, "3", "--model", tmp_path)
        assert (code, err.count("\n")) == (2, 1)
        assert "is a bert; leave out --target" in err
