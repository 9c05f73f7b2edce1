"""Training is strong enough to learn a short text by heart."""

from __future__ import annotations

import json

import pytest

from npgpt import evaluate
from tests.train.training_runs import start, write_story

SIZE = ("--n-layer", 2, "--n-head", 4, "--n-embd", 64, "--context", 64, "--batch-size", 4)
RATE = ("--lr", "5e-3", "--min-lr", "1e-5", "--weight-decay", 0, "--steps", 2700)
NOTHING_ELSE = ("--val-fraction", 0, "--sample-every", 0, "--save-every", 0)


@pytest.mark.slow
def test_a_text_of_four_kilobytes_is_learnt_by_heart(tmp_path, capsys):
    text, out = write_story(tmp_path, 4096), tmp_path / "run"
    process = start("--data", text, "--out", out, *SIZE, *RATE, *NOTHING_ELSE)
    errors = process.communicate()[1]
    assert process.returncode == 0, errors
    assert evaluate.main(["--model", str(out), str(text), "--json"]) == 0
    together = json.loads(capsys.readouterr().out)["npgpt"]["together"]
    assert (together["tokens"], together["bytes"]) == (4096, 4096)
    assert together["nats"] / together["tokens"] < 0.05
