"""The commands on a GPT-Neo: generate, evaluate, trace, explore, train."""

from __future__ import annotations

import json

import numpy as np
import pytest

import npgpt
from npgpt import cli, evaluate, generate
from npgpt.explore import command as explore
from npgpt.models.gpt_neo.model import GPTNeo
from npgpt.trace import command as trace
from tests.builders.gpt2 import END_OF_TEXT
from tests.builders.gpt_neo import write_tiny_gpt_neo
from tests.train import training_runs

TEXT = "The cat sat."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_gpt_neo(tmp_path_factory.mktemp("neo"))


def test_generate_with_and_without_a_cache(folder, capsys) -> None:
    argv = [TEXT, "--model", str(folder), "--max-new-tokens", "8", "--temperature", "0"]
    said = []
    for more in ([], ["--no-cache"]):
        assert cli.run(generate.PROG, generate.main, argv + more) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != ""


def test_evaluate_is_the_mean_loss(folder, tmp_path, capsys) -> None:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    argv = [str(path), "--model", str(folder), "--json"]
    assert cli.run(evaluate.PROG, evaluate.main, argv) == 0
    ids = [END_OF_TEXT, *TEXT.encode()]
    loss, _ = npgpt.from_pretrained(folder).loss_and_grads(ids[:-1], ids[1:])
    nats = json.loads(capsys.readouterr().out)["npgpt"]["together"]["nats"]
    assert nats == pytest.approx(len(TEXT) * float(loss), rel=1e-5)


def test_trace_shows_the_weights_of_the_pass(folder, capsys) -> None:
    argv = [TEXT, "--model", str(folder), "--json", "--layer", "1", "--head", "2"]
    assert cli.run(trace.PROG, trace.main, argv) == 0
    found = json.loads(capsys.readouterr().out)
    probs = npgpt.from_pretrained(folder).forward(list(TEXT.encode())).saved.blocks[1].attn.probs
    np.testing.assert_allclose(found["head"]["probs"], probs[2], rtol=1e-4, atol=1e-6)


def test_explore_writes_a_page_with_windows_and_its_own_names(folder, tmp_path) -> None:
    page = tmp_path / "page.html"
    argv = [TEXT, "--model", str(folder), "--out", str(page)]
    assert cli.run(explore.PROG, explore.main, argv) == 0
    text = page.read_text("utf-8")
    assert '"windows":[null,4]' in text
    assert '"out":"attention.out_proj"' in text


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_training_starts_from_it_and_writes_it(folder, tmp_path, optimizer) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat. " * 200)
    options = ["--data", text, "--init", folder, "--batch-size", 4, "--dropout", 0.1]
    options += ["--optimizer", optimizer, "--lr", 1e-2, "--warmup", 0, "--sample-every", 0]
    assert training_runs.run("--out", tmp_path / "run", *options, "--steps", 3) == 0
    assert training_runs.run("--out", tmp_path / "run", "--resume", "--steps", 4) == 0
    trained, before = npgpt.from_pretrained(tmp_path / "run"), npgpt.from_pretrained(folder)
    assert isinstance(trained, GPTNeo)
    assert (trained.config.windows, trained.config.attn_pdrop) == ([None, 4], 0.1)
    ids = list(b"The cat sat on the mat.")
    losses = [model.loss_and_grads(ids[:-1], ids[1:])[0] for model in (trained, before)]
    assert losses[0] < losses[1]
    for name, param in trained.params.items():
        assert (param != before.params[name]).any(), name
        assert np.isfinite(param).all()
