"""`python -m npgpt.fill_mask`: text and ids, one mask and several, and what it refuses."""

from __future__ import annotations

import importlib.util
import io
import json
import subprocess
import sys

import numpy as np
import pytest

import npgpt
from npgpt import cli
from npgpt.fill_mask import PROG, fill_masks, main
from tests.builders.bert import PIECES, write_tiny_bert
from tests.builders.gpt2 import write_tiny_gpt2

needs_tokenizers = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason='needs: pip install "npgpt[bert]"'
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_bert(tmp_path_factory.mktemp("bert"))


def run(*args):
    return cli.run(PROG, main, [str(arg) for arg in args])


def wanted(folder, ids, position):
    """Ids by falling probability, and the probabilities."""
    logits = npgpt.from_pretrained(folder)(ids)[position].astype(np.float64)
    probs = np.exp(logits) / np.exp(logits).sum()
    order = np.argsort(-probs)
    return order, probs[order]


def test_fill_masks_gives_the_likeliest_of_every_mask(folder):
    ids = [2, 5, 4, 8, 4, 3]
    found = fill_masks(npgpt.from_pretrained(folder), ids, 4, 3)
    assert list(found) == [2, 4]
    for position, candidates in found.items():
        order, probs = wanted(folder, ids, position)
        assert [each.id for each in candidates] == order[:3].tolist()
        np.testing.assert_allclose([each.probability for each in candidates], probs[:3], rtol=1e-5)
    every = fill_masks(npgpt.from_pretrained(folder), ids, 4, 99)[2]
    assert sum(each.probability for each in every) == pytest.approx(1)


@needs_tokenizers
def test_text(folder, capsys):
    assert run("The cat [MASK] on the mat.", "--model", folder, "--top-k", 2) == 0
    order, probs = wanted(folder, [2, 5, 6, 4, 9, 5, 10, 13, 3], 3)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for line, token, probability in zip(lines, order, probs, strict=False):
        number, name, *text = line.split()
        assert float(number) == pytest.approx(probability, abs=1e-4)
        assert name == PIECES[token]
        assert " ".join(text).endswith("on the mat.")
        assert "[CLS]" not in text


@needs_tokenizers
def test_several_masks_one_json_object_each(folder, capsys):
    text = "[MASK] cat [MASK]."
    assert run(text, "--model", folder, "--top-k", 3, "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["position"] for line in lines] == [1, 3]
    for line in lines:
        assert line["text"] == text
        assert line["ids"] == [2, 4, 6, 4, 13, 3]
        order, probs = wanted(folder, line["ids"], line["position"])
        assert [each["id"] for each in line["candidates"]] == order[:3].tolist()
        assert [each["token"] for each in line["candidates"]] == [PIECES[i] for i in order[:3]]
        assert line["candidates"][0]["probability"] == pytest.approx(probs[0], rel=1e-5)
        assert all(each["text"].count("[MASK]") >= 1 for each in line["candidates"])
    assert run(text, "--model", folder) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("mask 1 of 2\n")
    assert "\n\nmask 2 of 2\n" in printed


@needs_tokenizers
def test_rows_without_a_token_are_not_proposed(tmp_path, capsys):
    """Tables padded to a multiple of 8: the likeliest of all rows are padding here."""
    folder = write_tiny_bert(tmp_path / "padded", vocab_size=24)
    model = npgpt.from_pretrained(folder)
    model.params["cls.predictions.bias"][len(PIECES) :] = 9
    model.save_pretrained(folder, overwrite=True)
    order, probs = wanted(folder, [2, 5, 4, 8, 3], 2)
    assert min(order[:3]) >= len(PIECES)
    assert run("the [MASK] sat", "--model", folder, "--top-k", 99, "--json") == 0
    found = json.loads(capsys.readouterr().out)["candidates"]
    of_tokens = order < len(PIECES)
    assert [each["id"] for each in found] == order[of_tokens].tolist()
    np.testing.assert_allclose([each["probability"] for each in found], probs[of_tokens], rtol=1e-5)


@needs_tokenizers
def test_text_from_stdin(folder, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the [MASK]\n"), "utf-8"))
    assert run("-", "--model", folder, "--json") == 0
    assert json.loads(capsys.readouterr().out)["text"] == "the [MASK]"


def test_ids_need_no_vocabulary(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert run("--ids", "2 5 4 3", "--mask-id", 4, "--model", folder, "--top-k", 1) == 0
    best = wanted(folder, [2, 5, 4, 3], 2)[0][0]
    assert capsys.readouterr().out.split()[1:] == [str(best), "2", "5", str(best), "3"]
    assert run("--ids", "2 5 4 3", "--mask-id", 4, "--model", folder, "--json") == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["text"], line["candidates"][0]["token"]) == (None, None)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ([], 'give either a text ("-" reads it from stdin) or --ids.'),
        (["a", "--ids", "1"], 'give either a text ("-" reads it from stdin) or --ids.'),
        (["a", "--top-k", "0"], "--top-k must be at least 1, but is 0."),
        (["a", "--mask-id", "4"], "--mask-id goes with --ids"),
        (["--ids", "2 5 3"], "there is no mask; write id 103 where a token is to be guessed."),
        (["--ids", "2 x"], "ids must be whole numbers"),
        (["--ids", "4 99", "--mask-id", "4"], "token id 99 at index [1] has no row"),
        (["--ids", "4 " * 12, "--mask-id", "4"], "the text is 12 tokens long"),
    ],
)
def test_bad_input_is_one_sentence(folder, capsys, args, sentence):
    assert run(*args, "--model", folder) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sentence in err


@needs_tokenizers
def test_a_text_without_a_mask(folder, capsys):
    assert run("the cat sat", "--model", folder) == 2
    assert "there is no mask; write [MASK] where a token" in capsys.readouterr().err


def test_without_the_package_it_is_named(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert run("the [MASK]", "--model", folder) == 2
    assert 'pip install "npgpt[bert]"' in capsys.readouterr().err


def test_other_models_are_refused(tmp_path, capsys):
    assert run("a [MASK]", "--model", write_tiny_gpt2(tmp_path / "gpt2")) == 2
    assert "is a gpt2, on which npgpt.fill_mask does not work" in capsys.readouterr().err
    headless = write_tiny_bert(tmp_path / "bare", mlm_head=False)
    assert run("--ids", "2 4 3", "--mask-id", 4, "--model", headless) == 2
    assert "this BERT has no MLM head" in capsys.readouterr().err
    assert run("a [MASK]", "--model", tmp_path / "none") == 2
    assert "There is no model" in capsys.readouterr().err


def test_as_a_command(folder):
    command = [sys.executable, "-W", "error", "-m", PROG, "--ids", "2 4 3", "--mask-id", "4"]
    done = subprocess.run(
        [*command, "--model", str(folder)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 5


@needs_tokenizers
@pytest.mark.hub
def test_bert_base_as_its_model_card_has_it(capsys):
    """What BERT-base, uncased, is published to put in, with five digits."""
    text = "Hello I'm a [MASK] model."
    assert run(text, "--model", "google-bert/bert-base-uncased", "--json") == 0
    found = json.loads(capsys.readouterr().out)["candidates"]
    assert [each["token"] for each in found] == ["fashion", "role", "new", "super", "fine"]
    published = [0.10731, 0.08774, 0.05338, 0.04667, 0.02710]
    np.testing.assert_allclose([each["probability"] for each in found], published, atol=1e-4)
