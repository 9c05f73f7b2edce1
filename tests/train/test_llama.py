"""Training that starts from a Llama."""

from __future__ import annotations

import signal

import numpy as np
import pytest

import npgpt
from npgpt.models.llama.model import Llama
from npgpt.train import command as train
from tests.builders.gguf import llama_file, write_gguf
from tests.builders.llama import random_llama, write_tiny_llama
from tests.train.training_runs import at_step, run


@pytest.fixture
def folder(tmp_path):
    return write_tiny_llama(tmp_path / "llama")


@pytest.mark.parametrize(("dropout", "optimizer"), [(0.0, "adamw"), (0.2, "adamw"), (0.0, "muon")])
def test_train_from_a_llama_stopped_and_resumed(
    folder, tmp_path, monkeypatch, dropout, optimizer
) -> None:
    """Four steps in one go, or stopped after two, end in the same numbers, and learn."""
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat. " * 200)
    options = ["--data", text, "--init", folder, "--batch-size", 4, "--dropout", dropout]
    options += [
        "--optimizer",
        optimizer,
        "--lr",
        1e-2,
        "--warmup",
        0,
        "--sample-every",
        0,
        "--steps",
        4,
    ]
    assert run("--out", tmp_path / "whole", *options) == 0
    with monkeypatch.context() as patch:
        at_step(patch, 2, lambda: signal.raise_signal(signal.SIGINT))
        assert run("--out", tmp_path / "halves", *options) == 130
    assert run("--out", tmp_path / "halves", "--resume") == 0
    whole, halves = (npgpt.from_pretrained(tmp_path / name) for name in ("whole", "halves"))
    assert isinstance(whole, Llama)
    assert whole.config.attention_dropout == dropout
    before = npgpt.from_pretrained(folder)
    ids = list(b"The cat sat on the mat.")
    assert whole.loss_and_grads(ids[:-1], ids[1:])[0] < before.loss_and_grads(ids[:-1], ids[1:])[0]
    for name, param in whole.params.items():
        assert (param != before.params[name]).any(), name
        np.testing.assert_array_equal(param, halves.params[name])


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_train_experts_with_their_load_balance(tmp_path, optimizer) -> None:
    """The loss that is printed is the one that falls: both parts together."""
    experts = {"num_local_experts": 4, "output_router_logits": True, "router_aux_loss_coef": 0.1}
    folder = write_tiny_llama(tmp_path / "mixtral", model_type="mixtral", **experts)
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat. " * 200)
    options = ["--data", text, "--init", folder, "--batch-size", 4, "--optimizer", optimizer]
    options += ["--lr", 1e-2, "--warmup", 0, "--sample-every", 0, "--steps", 8]
    assert run("--out", tmp_path / "out", *options) == 0
    before, after = (npgpt.from_pretrained(place) for place in (folder, tmp_path / "out"))
    assert after.config.output_router_logits
    ids = list(b"The cat sat on the mat.")
    assert after.loss_and_grads(ids[:-1], ids[1:])[0] < before.loss_and_grads(ids[:-1], ids[1:])[0]
    assert all((after.params[name] != param).any() for name, param in before.params.items())


def test_train_from_a_gguf_is_refused(rng, tmp_path) -> None:
    path = write_gguf(tmp_path / "x.gguf", *llama_file(random_llama(rng, np.float32)))
    argv = ["--init", str(path), "--data", str(path), "--out", str(tmp_path / "out")]
    with pytest.raises(ValueError, match=r"a run starts from a folder, .*x\.gguf"):
        train.main(argv)
