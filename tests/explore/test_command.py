"""`python -m npgpt.explore`: what it accepts, and what it refuses in one sentence."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import numpy as np
import pytest

from npgpt.explore import command, explore
from tests.builders.gpt2 import random_gpt2, write_tiny_gpt2
from tests.builders.llama import write_tiny_llama


@pytest.fixture
def run(run_command, tmp_path, monkeypatch):
    """The command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *argv: run_command(command, *argv)


def data_of(path) -> Any:
    (data,) = re.findall(
        r'<script id="data" type="application/json">(.*?)</script>', path.read_text("utf-8")
    )
    return json.loads(data)


@pytest.mark.parametrize("write", [write_tiny_gpt2, write_tiny_llama])
def test_a_page_is_written(run, tmp_path, write) -> None:
    folder = write(tmp_path / "model")
    code, out, err = run("The cat", "--model", folder, "--out", "page.html", "--position", 3)
    assert (code, err) == (0, "")
    assert re.fullmatch(r"page.html: 7 tokens, 0.\d MB; open it in a browser.\n", out)
    data = data_of(tmp_path / "page.html")
    assert data["text"] == "The cat"
    assert data["start"] == {"position": 3, "target": None, "foil": None}
    assert not list(tmp_path.glob(".npgpt*"))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are text")
def test_a_folder_whose_name_is_no_utf_8(run, tmp_path) -> None:
    folder = write_tiny_gpt2(tmp_path / "caf\udce9")
    assert run("The cat", "--model", folder)[0] == 0
    assert data_of(tmp_path / "explore.html")["model"].endswith("caf\ufffd")


def test_target_and_foil_by_text_and_by_id(run, tmp_path) -> None:
    folder = write_tiny_gpt2(tmp_path / "model")
    options = ["--target", "␣", "--foil", "#7", "--model", folder, "--position", 1]
    assert run("ab c", *options)[0] == 0
    start = data_of(tmp_path / "explore.html")["start"]
    assert start == {"position": 1, "target": 32, "foil": 7}


def test_ids_need_no_vocabulary(run, tmp_path) -> None:
    folder = write_tiny_gpt2(tmp_path / "model")
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    assert run("--ids", "5 6 7", "--model", folder)[0] == 0
    assert data_of(tmp_path / "explore.html")["tokens"][2]["label"] == "#7"
    code, _, err = run("--ids", "5 6 7", "--target", "a", "--model", folder)
    assert (code, "needs a vocabulary" in err) == (2, True)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["a"], "a page needs at least two tokens"),
        (["ab", "--position", "2"], "there is no position 2: the text has 2 tokens, from 0."),
        (["ab", "--target", "xy"], "--target 'xy' is 2 tokens; give one"),
        (["ab", "--ids", "1 2"], "give either a text"),
        (["ab", "--out", "missing/page.html"], "missing"),
        (["ab", "--foil", "#900"], "there is no token 900"),
        (["ab", "--target", "#7", "--foil", "#7"], "target and foil are the same token, 7;"),
    ],
)
def test_one_sentence_says_what_is_wrong(run, tmp_path, argv, sentence) -> None:
    folder = write_tiny_gpt2(tmp_path / "model")
    code, out, err = run(*argv, "--model", folder)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_model_in_memory_and_one_with_its_vocabulary(rng, tmp_path) -> None:
    import npgpt

    shown = explore(random_gpt2(rng), np.array([1, 4, 2]))
    assert shown._repr_html_().startswith("<iframe")
    assert "#4" in shown.html
    model = npgpt.from_pretrained(write_tiny_gpt2(tmp_path / "tiny"))
    explore(model, [84, 104, 101]).save(tmp_path / "page.html")
    data = data_of(tmp_path / "page.html")
    assert (data["model"], data["text"]) == ("tiny", "The")
