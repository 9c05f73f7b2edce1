"""`python -m npgpt.trace`: what it accepts, and what it refuses in one sentence."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys

import numpy as np
import pytest

import npgpt
from npgpt.files.safetensors_file import write_tensors
from tests.builders.gguf import llama_file, write_gguf
from tests.builders.gpt2 import END_OF_TEXT, write_tiny_gpt2
from tests.trace.conftest import write_llama


def test_ids_need_no_vocabulary(run, tmp_path):
    folder = write_tiny_gpt2(tmp_path)
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    code, out, err = run(folder, "--ids", "5, 6 7")
    assert (code, err) == (0, "")
    assert out.splitlines()[1] == "0 #5  1 #6  [2 #7]"
    code, out, _ = run(folder, "--ids", "5 6 7", "--json")
    assert json.loads(out)["tokens"][2] == {"id": 7, "label": "#7"}


def test_ids_with_a_vocabulary_are_shown_as_text(gpt2, traced):
    assert traced(gpt2, "--ids", "84 104 101")["text"] == "The"


def test_rows_of_wte_without_a_token_have_a_number(run, tmp_path):
    folder = write_tiny_gpt2(tmp_path, vocab_size=900)
    assert re.search(r"#\d{3} 0\.", run(folder, "a")[1])


def test_end_of_text_is_text_unless_asked(gpt2, traced):
    assert len(traced(gpt2, "<|endoftext|>")["tokens"]) == 13
    assert traced(gpt2, "<|endoftext|>", "--special")["tokens"][0]["id"] == END_OF_TEXT


def test_text_from_stdin(gpt2, traced, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ab\n"), "utf-8"))
    assert [t["label"] for t in traced(gpt2, "-")["tokens"]] == ["a", "b", "⏎"]


def test_float64_on_request(gpt2, traced):
    exact = traced(gpt2, "ab", "--dtype", "float64")
    assert exact["dtype"] == "float64"
    model = npgpt.from_pretrained(gpt2, dtype=np.float64)
    x = model.params["wte.weight"][97] + model.params["wpe.weight"][0]
    assert exact["corrections"][0]["stream"][0] == pytest.approx(np.linalg.norm(x), rel=1e-14)


def test_a_gguf_file_says_the_same(traced, run, llama, tmp_path):
    settings, tensors = llama_file(npgpt.from_pretrained(llama))
    path = write_gguf(tmp_path / "x.gguf", settings, tensors)
    of_folder = traced(llama, "--ids", "84 104 101")
    of_file = traced(path, "--ids", "84 104 101")
    assert of_file["tokens"][0] == {"id": 84, "label": "#84"}  # a file without a vocabulary
    assert of_file["rotary_angles"] == pytest.approx(of_folder["rotary_angles"], rel=1e-6)
    for ours, theirs in zip(of_file["corrections"], of_folder["corrections"], strict=True):
        assert ours["added"] == pytest.approx(theirs["added"], rel=1e-4)
    for ours, theirs in zip(of_file["guesses"], of_folder["guesses"], strict=True):
        assert [t["id"] for t in ours["likeliest"]] == [t["id"] for t in theirs["likeliest"]]
    code, out, err = run(path, "The")
    assert (code, out, "tokenizer.ggml.model" in err) == (2, "", True)


@pytest.mark.filterwarnings("always:.*NaN")
def test_a_model_with_nan_is_traced_all_the_same(run, tmp_path):
    folder = write_tiny_gpt2(tmp_path)
    model = npgpt.from_pretrained(folder)
    model.params["h.1.mlp.c_proj.bias"][0] = np.nan
    write_tensors(folder / "model.safetensors", model.params, {"format": "pt"})
    code, out, err = run(folder, "ab")
    assert (code, "NaN" in err) == (0, True)
    assert re.search(r"^h\.1\.mlp .* nan ", out, re.MULTILINE)
    code, out, _ = run(folder, "ab", "--json")
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
        (("a" * 33,), "33 tokens long, but the model has positions for 32"),
        (("ab", "--position", 2), "--position 2 does not exist: there are 2 tokens"),
        (("ab", "--position", -1), "--position -1 does not exist"),
        (("ab", "--layer", 2), "--layer 2 does not exist: there are 2 blocks"),
        (("ab", "--layer", 0, "--head", 6), "--head 6 does not exist: there are"),
        (("ab", "--head", 0), "--layer"),
        (("ab", "--top", 0), "--top"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(run, folder, arguments, says):
    code, out, err = run(folder, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_the_number_of_heads_is_the_models(run, gpt2, llama):
    assert "there are 3 heads" in run(gpt2, "ab", "--layer", 0, "--head", 3)[2]
    assert "there are 6 heads" in run(llama, "ab", "--layer", 0, "--head", 6)[2]


def test_dynamic_positions_go_on_beyond_those_of_the_training(traced, run, tmp_path):
    folder = write_llama(tmp_path, rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    assert len(traced(folder, "a" * 64)["tokens"]) == 64
    code, _, err = run(folder, "a" * 65)
    assert (code, "65 tokens long, but the model has positions for 64" in err) == (2, True)


def test_attention_weights_that_no_memory_holds_are_refused(run, llama, monkeypatch):
    """2 blocks of 6 heads, 16 × 16 weights of 4 bytes: 12 KiB."""
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 3, "SC_PAGE_SIZE": 4095}.get)
    code, out, err = run(llama, "a" * 16)
    assert (code, out) == (2, "")
    assert "the weight tables of 2 × 6 heads over 16 tokens take" in err
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 3, "SC_PAGE_SIZE": 4096}.get)
    assert run(llama, "a" * 16)[0] == 0


def test_a_text_without_a_vocabulary_is_refused(run, tmp_path):
    folder = write_tiny_gpt2(tmp_path)
    (folder / "vocab.json").unlink()
    code, out, err = run(folder, "a")
    assert (code, out) == (2, "")
    assert "vocab.json" in err


def test_python_m_speaks_utf8(gpt2):
    command = [sys.executable, "-W", "error", "-m", "npgpt.trace", "猫", "--model", str(gpt2)]
    done = subprocess.run(command, capture_output=True, check=True)
    assert "[2 <AB>]" in done.stdout.decode("utf-8")
