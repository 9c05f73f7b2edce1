"""python -m npgpt.translate: text in, text out, and one sentence for what cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import Any

import pytest

import npgpt
from npgpt import translate
from npgpt.text.seq2seq import CharacterTables, load_marian_tokenizer
from tests.builders.gpt2 import write_tiny_gpt2
from tests.builders.transformer import random_transformer, write_marian

TABLES = {"grapheme_chars": "____abcdefghijklmno", "phoneme_chars": "____æbˈdɛfɡhIʤklmnO"}
MARKS = {"pad_token_id": 0, "bos_token_id": 1, "decoder_start_token_id": 1, "eos_token_id": 2}


@pytest.fixture
def run(run_command):
    return partial(run_command, translate)


@pytest.fixture
def speller(rng, tmp_path):
    """A folder whose characters stand in config.json."""
    options: dict[str, Any] = {"model_type": "bart", "max_length": 9, **MARKS, **TABLES}
    random_transformer(rng, **options).save_pretrained(tmp_path)
    return tmp_path


def test_characters_of_config_json(run, speller) -> None:
    code, out, err = run("bad", "--model", speller)
    model = npgpt.from_pretrained(speller)
    tables = CharacterTables(model.config)
    assert tables.encode("bad~") == [1, 5, 4, 7, 3, 2]
    assert tables.encode("_") == [1, 3, 2]
    assert (code, err) == (0, "")
    assert out == tables.decode(model.generate([1, 5, 4, 7, 2])) + "\n"
    assert tables.encode_target("bæ~") == [1, 5, 4, 3, 2]
    assert tables.decode([4, 5, 2, 3, 1, 0, 6, 18]) == "æbˈO"


def test_ids_in_ids_out(run, speller) -> None:
    want = npgpt.from_pretrained(speller).generate([1, 5, 2], max_new_tokens=4, num_beams=3)
    args = ["--ids", "1 5 2", "--model", speller, "--beams", "3", "--max-new-tokens", "4"]
    assert run(*args) == (0, " ".join(map(str, want)) + "\n", "")
    code, out, _ = run(*args, "--json", "--no-cache", "--length-penalty", "1")
    assert code == 0
    assert json.loads(out) == {"text": None, "ids": [1, 5, 2], "translation": None, "new_ids": want}


def test_line_by_line_from_stdin(speller) -> None:
    command = [sys.executable, "-m", "npgpt.translate", "-", "--model", str(speller), "--verbose"]
    done = subprocess.run(
        command, input="bad\n\nface\n", capture_output=True, encoding="utf-8", check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert lines[1] == ""
    assert done.stderr.count("ids read") == 2
    assert "tokens/s" in done.stderr


def test_a_marian_model_end_to_end(spm, run, tmp_path) -> None:
    model, text = write_marian(tmp_path), "the cat sat on the mat"
    code, out, err = run(text, "--model", tmp_path, "--json")
    tokenizer = load_marian_tokenizer(tmp_path)
    ids = tokenizer.encode(text)
    want = model.generate(ids)
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "text": text,
        "ids": ids,
        "translation": tokenizer.decode(want),
        "new_ids": want,
    }
    assert len(want) <= 11
    assert model.config.pad_token_id not in want


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], 'give either a text ("-" reads it from stdin) or --ids.'),
        (["a", "--ids", "1"], "give either a text"),
        (["a", "--beams", "0"], "num_beams must be a whole number from 1 to 1000, but is 0."),
        (["--ids", "1 x"], "ids must be whole numbers"),
        (["--ids", "99"], "token id 99 at index [0] has no row"),
    ],
)
def test_bad_input_is_one_sentence(run, speller, args, says) -> None:
    code, out, err = run(*args, "--model", speller)
    assert (code, out) == (2, "")
    assert err.startswith("npgpt.translate: error: ")
    assert says in err
    assert err.count("\n") == 1


def test_models_that_do_not_translate(run, rng, tmp_path) -> None:
    folder = write_tiny_gpt2(tmp_path / "gpt2")
    code, _, err = run("a", "--model", folder)
    assert (code, err.count("\n")) == (2, 1)
    assert "is a gpt2, on which npgpt.translate does not work; what does: npgpt.generate," in err
    random_transformer(rng, model_type="bart").save_pretrained(tmp_path / "bart")
    code, _, err = run("a", "--model", tmp_path / "bart")
    assert (code, err.count("\n")) == (2, 1)
    assert "is a bart, whose vocabulary is not read here; token ids need none." in err


@pytest.mark.real
def test_squirrel(run, data_dir) -> None:
    folder = data_dir / "checkpoints" / "bart-g2p-us"
    assert run("squirrel", "--model", folder) == (0, "skwˈɜɹᵊl\n", "")


@pytest.mark.hf
@pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses
def test_a_translation_is_that_of_transformers(hf, spm, tmp_path) -> None:
    from transformers import MarianMTModel, MarianTokenizer

    ours = write_marian(tmp_path)
    tokenizer = MarianTokenizer.from_pretrained(tmp_path)
    reference = MarianMTModel.from_pretrained(tmp_path).eval()
    batch = tokenizer(["the cat sat on the mat"], return_tensors="pt")
    pad = ours.config.pad_token_id
    want = reference.generate(**batch, num_beams=2, max_length=12, bad_words_ids=[[pad]])
    assert ours.generate(batch["input_ids"][0].numpy()) == want[0, 1:].tolist()
    target = "猫坐在垫子上Ω"
    wanted = tokenizer(text_target=target)["input_ids"]
    assert load_marian_tokenizer(tmp_path).encode_target(target) == wanted
