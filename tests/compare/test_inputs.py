"""`python -m npgpt.compare`: what it takes, and how it refuses."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from npgpt.files.safetensors_file import read_tensors
from tests.compare.ports import edited, run
from tests.tiny import write_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def dumped(folder, tmp_path) -> Path:
    """npgpt's own stations of "hello", with gradients, as another program might have made them."""
    path = tmp_path / "port.safetensors"
    assert run("hello", "--model", folder, "--dump", path, "--gradients")[:2] == (0, "")
    return path


def test_ids_come_from_the_command_or_the_file(folder, dumped):
    ids = " ".join(map(str, b"hello"))
    assert run("--ids", ids, "--model", folder, "--against", dumped)[0] == 0
    code, out, err = run("jello", "--model", folder, "--against", dumped)
    assert (code, out) == (2, "")
    assert "its 'ids' 104 101 108 108 111 are not those given here, 106 101" in err
    edited(dumped, ids=None)
    assert run("hello", "--model", folder, "--against", dumped)[0] == 0
    assert "give a text or --ids" in run("--model", folder, "--against", dumped)[2]


def test_text_from_stdin(folder, dumped, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello"))
    assert run("-", "--model", folder, "--against", dumped)[0] == 0


def test_dump_and_compare_at_once(folder, dumped, tmp_path):
    own = tmp_path / "own.safetensors"
    code, out, err = run("--model", folder, "--against", dumped, "--dump", own)
    assert code == 0
    assert "all 11 stations" in out
    assert f"wrote 12 arrays to {own}" in err
    assert "loss" not in read_tensors(own)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a", "--ids", "1"], "give either a text or --ids"),
        (["--ids", "1", "--tolerance", "-1"], "--tolerance must be a number >= 0"),
        (["--ids", "1", "--tolerance", "nan"], "--tolerance must be a number >= 0"),
        (["--ids", "1", "--dump", "a.npz"], "--dump writes a .safetensors file"),
        (["--ids", "1", "--dump", "gone/a.safetensors"], "gone"),
        (["--ids", "1", "--against", "gone.npz"], "gone.npz does not exist"),
        (["--ids", "1", "--against", "port.pt"], "stations are read from"),
        (["--ids", "1 x", "--dump", "a.safetensors"], "ids must be whole numbers"),
        (["--ids", "", "--dump", "a.safetensors"], "there are no tokens"),
        (["", "--dump", "a.safetensors"], "there are no tokens"),
        (["--dump", "a.safetensors"], "give a text or --ids"),
        (["--ids", "9" * 20, "--dump", "a.safetensors"], "ids"),
        (["--ids", "300", "--dump", "a.safetensors"], "300"),
        (["--ids", "1", "--gradients", "--dump", "a.safetensors"], "at least two tokens"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(folder, arguments, sentence):
    code, out, err = run("--model", folder, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("npgpt.compare: error: ")
    assert err.count("\n") == 1
    assert sentence in err


def test_a_text_needs_a_vocabulary(tmp_path):
    folder = write_tiny_model(tmp_path)
    (folder / "vocab.json").unlink()
    code, _, err = run("hello", "--model", folder, "--dump", tmp_path / "a.safetensors")
    assert code == 2
    assert "--ids" in err


def test_without_torch_a_sentence_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    code, out, err = run("hello", "--model", folder)
    assert (code, out) == (2, "")
    assert "pip install 'npgpt[hf]'" in err


def test_a_process_of_its_own(folder, dumped):
    """As a user starts it; without torch, which a dump does not need."""
    command = [sys.executable, "-W", "error", "-m", "npgpt.compare"]
    arguments = ["--model", str(folder), "--against", str(dumped)]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "all 11 stations are within tolerance" in done.stdout
