"""What the command compares on, and how it refuses bad input."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt.files.safetensors_file import read_tensors
from tests.builders.bert import PIECES, write_tiny_bert
from tests.builders.gpt2 import write_tiny_gpt2
from tests.builders.transformer import random_transformer, write_marian
from tests.builders.vocabularies import write_foreign_llama
from tests.compare.ports import SOURCE_AND_TARGET, edited, run
from tests.test_translate import MARKS, TABLES


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
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello"), "utf-8"))
    assert run("-", "--model", folder, "--against", dumped)[0] == 0


def test_dump_and_compare_at_once(folder, dumped, tmp_path):
    own = tmp_path / "own.safetensors"
    code, out, err = run("--model", folder, "--against", dumped, "--dump", own)
    assert code == 0
    assert "all 29 stations" in out
    assert f"wrote 30 arrays to {own}" in err
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
    folder = write_tiny_gpt2(tmp_path)
    (folder / "vocab.json").unlink()
    code, _, err = run("hello", "--model", folder, "--dump", tmp_path / "a.safetensors")
    assert code == 2
    assert "token ids need none" in err


def test_without_torch_a_sentence_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    code, out, err = run("hello", "--model", folder)
    assert (code, out) == (2, "")
    assert 'pip install "npgpt[hf]"' in err


def test_a_process_of_its_own(folder, dumped):
    """As a user starts it; without torch, which a dump does not need."""
    command = [sys.executable, "-W", "error", "-m", "npgpt.compare"]
    arguments = ["--model", str(folder), "--against", str(dumped)]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "verdict: all 29 stations are within tolerance" in done.stdout


@pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason='needs: pip install "npgpt[bert]"'
)
def test_text_goes_through_the_word_pieces(tmp_path):
    folder, dump = write_tiny_bert(tmp_path / "model"), tmp_path / "port.safetensors"
    code, out, err = run("The cats sat.", "--model", folder, "--dump", dump, "--gradients")
    assert (code, out) == (0, "")
    assert "wrote 96 arrays" in err
    assert read_tensors(dump)["ids"].tolist() == [2, 5, 6, 7, 8, 13, 3]
    code, out, err = run("--model", folder, "--against", dump, "--gradients")
    assert (code, err) == (0, "")
    assert (
        "verdict: all 27 stations, 26 station gradients and 42 parameter gradients are within"
        in out
    )
    assert "likeliest at position 6:" in out
    shown = dict(re.findall(r"(\d+) +'(\S+)'", out.split("likeliest")[1]))
    assert shown
    assert all(PIECES[int(token)] == piece for token, piece in shown.items())
    assert run("The cat.", "--model", folder, "--against", dump)[0] == 2


def test_a_target_for_a_bert_is_refused(bert, tmp_path):
    for option in ("--target", "--target-ids"):
        code, _, err = run("--ids", "1 2", option, "3", "--model", tmp_path)
        assert (code, err.count("\n")) == (2, 1)
        assert "is a bert; leave out --target" in err


def test_source_and_target_come_from_the_command_or_the_file(bart, tmp_path):
    dump = tmp_path / "port.safetensors"
    assert run(*SOURCE_AND_TARGET, "--model", tmp_path, "--dump", dump)[0] == 0
    against = ("--model", tmp_path, "--against", dump)
    for given in (SOURCE_AND_TARGET, SOURCE_AND_TARGET[:2], ()):
        assert run(*given, *against)[0] == 0
    code, out, err = run("--target-ids", "6 11 7", *against)
    assert (code, out) == (2, "")
    assert "its 'target_ids' 6 11 7 2 are not those given here, 6 11 7; leave" in err
    edited(dump, target_ids=None)
    assert "give --target or --target-ids to compare on" in run(*against)[2]
    assert run(*SOURCE_AND_TARGET[2:], *against)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--ids", "1 2"], "give --target or --target-ids to compare on, or a file with"),
        (["--target-ids", "1 2"], "give a text or --ids to compare on, or a file with"),
        (["--ids", "1", "--target-ids", ""], "no tokens to compare on; give --target or"),
        (["--ids", "1", "--target-ids", "2", "--target", "a"], "either --target or --target-ids"),
        (["--ids", "1", "--target-ids", "x"], "ids must be whole numbers"),
        (["--ids", "99", "--target-ids", "2"], "token id 99"),
        (["--ids", "1", "--target-ids", "99 2"], "token id 99"),
        (["--ids", "1", "--target-ids", "2 99"], "target 99 at index [1]"),
        (["--ids", "1", "--target", "a"], "is a bart, whose vocabulary is not read here"),
        (["a", "--target-ids", "1"], "is a bart, whose vocabulary is not read here"),
    ],
)
def test_bad_input_for_an_encoder_decoder(bart, tmp_path, arguments, sentence):
    code, out, err = run("--model", tmp_path, "--dump", tmp_path / "a.safetensors", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err


@pytest.mark.filterwarnings("default")
def test_characters_of_config_json(rng, tmp_path):
    options: dict[str, Any] = {"model_type": "bart", **MARKS, **TABLES}
    random_transformer(rng, np.float32, **options).save_pretrained(tmp_path)
    dump = tmp_path / "a.safetensors"
    code, _, err = run("bad", "--target", "bæd?", "--model", tmp_path, "--dump", dump)
    assert code == 0
    assert "1 of 6 tokens are <unk>" in err
    found = read_tensors(dump)
    assert found["ids"].tolist() == [1, 5, 4, 7, 2]
    assert found["target_ids"].tolist() == [1, 5, 4, 7, 3, 2]
    out = run("--model", tmp_path, "--against", dump, "--json")[1]
    shown = {each["token"] for each in json.loads(out)["logits"]["ours"]}
    assert shown & {*TABLES["phoneme_chars"]}


def test_marians_pieces(spm, tmp_path):
    model, dump = write_marian(tmp_path), tmp_path / "a.safetensors"
    text = ("the cat sat on the mat", "--target", "猫坐在垫子上")
    assert run(*text, "--model", tmp_path, "--dump", dump)[0] == 0
    found = read_tensors(dump)
    end = model.config.eos_token_id
    assert found["ids"][-1] == found["target_ids"][-1] == end
    assert found["target_ids"].min() >= 0
    code, out, err = run(*text, "--model", tmp_path, "--against", dump)
    assert (code, err) == (0, "")
    assert "'" in out.split("likeliest")[1]


def test_another_kind_of_vocabulary(tokenizers, tmp_path):
    dump, folder = tmp_path / "a.safetensors", write_foreign_llama(tmp_path / "llama")
    assert run("the cat", "--model", folder, "--dump", dump)[0] == 0
    ids = npgpt.load_tokenizer(folder).encode("the cat")
    assert read_tensors(dump)["ids"].tolist() == ids
    assert ids[0] == 1
    out = run("--model", folder, "--against", dump, "--json")[1]
    shown = [each["token"] for each in json.loads(out)["logits"]["ours"]]
    assert all(isinstance(token, str) for token in shown)


@pytest.mark.hf
def test_another_kind_of_vocabulary_against_transformers(hf, tokenizers, tmp_path):
    folder = write_foreign_llama(tmp_path / "llama")
    assert run("the cat", "--model", folder)[0] == 0
