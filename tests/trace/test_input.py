"""`python -m npgpt.trace`: what it accepts, and what it refuses in one sentence."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt import cli
from npgpt.files.safetensors_file import write_tensors
from npgpt.trace import command as trace
from tests.tiny import END_OF_TEXT, write_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def run(capsys):
    """Run the command in this process: exit code, stdout, stderr."""

    def call(*argv: object) -> tuple[int, str, str]:
        code = cli.run(trace.PROG, trace.main, [str(a) for a in argv])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def traced(run, folder):
    """What `--json` says of a text."""

    def call(*argv: object) -> dict[str, Any]:
        code, out, err = run(*argv, "--model", folder, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call


def test_ids_need_no_vocabulary(run, tmp_path):
    folder = write_tiny_model(tmp_path)
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    code, out, err = run("--ids", "5, 6 7", "--model", folder)
    assert (code, err) == (0, "")
    assert out.splitlines()[1] == "0 #5  1 #6  [2 #7]"
    code, out, _ = run("--ids", "5 6 7", "--model", folder, "--json")
    assert json.loads(out)["tokens"][2] == {"id": 7, "label": "#7"}


def test_ids_with_a_vocabulary_are_shown_as_text(traced):
    assert traced("--ids", "84 104 101")["text"] == "The"


def test_rows_of_wte_without_a_token_have_a_number(run, tmp_path):
    folder = write_tiny_model(tmp_path, vocab_size=900)
    assert re.search(r"#\d{3} 0\.", run("a", "--model", folder)[1])


def test_end_of_text_is_text_unless_asked(traced):
    assert len(traced("<|endoftext|>")["tokens"]) == 13
    assert traced("<|endoftext|>", "--special")["tokens"][0]["id"] == END_OF_TEXT


def test_text_from_stdin(traced, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("ab\n"))
    assert [t["label"] for t in traced("-")["tokens"]] == ["a", "b", "⏎"]


def test_float64_on_request(run, folder):
    exact = json.loads(run("ab", "--model", folder, "--dtype", "float64", "--json")[1])
    assert exact["dtype"] == "float64"
    model = npgpt.from_pretrained(folder, dtype=np.float64)
    x = model.params["wte.weight"][97] + model.params["wpe.weight"][0]
    assert exact["corrections"][0]["stream"][0] == pytest.approx(np.linalg.norm(x), rel=1e-14)


@pytest.mark.filterwarnings("always:.*NaN")
def test_a_model_with_nan_is_traced_all_the_same(run, tmp_path):
    folder = write_tiny_model(tmp_path)
    model = npgpt.from_pretrained(folder)
    model.params["h.1.mlp.c_proj.bias"][0] = np.nan
    write_tensors(folder / "model.safetensors", model.params, {"format": "pt"})
    code, out, err = run("ab", "--model", folder)
    assert (code, "NaN" in err) == (0, True)
    assert re.search(r"^h\.1\.mlp .* nan ", out, re.MULTILINE)
    code, out, _ = run("ab", "--model", folder, "--json")
    assert json.loads(out)["corrections"][-1]["added"] == [None, None]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "text"),
        (("a", "--ids", "1"), "text"),
        (("",), "no tokens"),
        (("--ids", ""), "no tokens"),
        (("--ids", "1 x"), "whole numbers"),
        (("--ids", "257"), "257"),
        (("a" * 33,), "33 tokens long"),
        (("ab", "--position", 2), "--position 2"),
        (("ab", "--position", -1), "--position -1"),
        (("ab", "--layer", 2), "--layer 2"),
        (("ab", "--layer", 0, "--head", 3), "--head 3"),
        (("ab", "--head", 0), "--layer"),
        (("ab", "--top", 0), "--top"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(run, folder, arguments, says):
    code, out, err = run(*arguments, "--model", folder)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert says in err


def test_a_text_without_a_vocabulary_is_refused(run, tmp_path):
    folder = write_tiny_model(tmp_path)
    (folder / "vocab.json").unlink()
    code, out, err = run("a", "--model", folder)
    assert (code, out) == (2, "")
    assert "vocab.json" in err


def test_python_m_speaks_utf8(folder):
    command = [sys.executable, "-W", "error", "-m", "npgpt.trace", "猫", "--model", str(folder)]
    done = subprocess.run(command, capture_output=True, check=True)
    assert "[2 <AB>]" in done.stdout.decode("utf-8")


def test_a_long_text_is_shown_around_the_position(run, tmp_path):
    folder = write_tiny_model(tmp_path, n_positions=300)
    out = run("abc " * 75, "--model", folder, "--position", 150)[1]
    title = out.split("\n\n")[0].splitlines()
    assert len(title) < 10
    assert (title[2], title[-1]) == ("…", "…")
    assert "[150 c]" in " ".join(title)
