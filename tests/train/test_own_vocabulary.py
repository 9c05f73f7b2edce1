"""`--vocab-size`: a vocabulary from the run's own text, in the folder of the run and through it."""

from __future__ import annotations

import sys

import pytest

import npgpt
from npgpt.files.safetensors_file import read_tensors
from tests.train.test_input import refuse
from tests.train.training_runs import SMALL, facts, run, story, weights, write_story

pytestmark = pytest.mark.usefixtures("tokenizers")
POEM = "《静夜思》李白\n床前明月光，疑是地上霜。\n举头望明月，低头思故乡。\n\n"
CODE = "def low(x):\n    return x if x < 0.5 else low(x - 0.5)\n\n\n"


def vocabulary(folder):
    return {name: (folder / name).read_bytes() for name in ("vocab.json", "merges.txt")}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run on two kinds of text that stopped after its first step, and what it read."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "texts").mkdir()
    (folder / "texts" / "a.txt").write_text(POEM * 20, encoding="utf-8", newline="")
    write_story(folder / "texts", 3000, "b.txt")
    options = (*SMALL, "--steps", 4, "--vocab-size", 400, "--time-limit", 0)
    assert run("--data", folder / "texts", "--out", folder / "run", *options) == 0
    return folder


def test_the_model_has_the_ids_that_were_asked_for(made):
    folder = made / "run"
    config, tokenizer = npgpt.from_pretrained(folder).config, npgpt.load_tokenizer(folder)
    assert (config.vocab_size, config.eos_token_id, tokenizer.end_of_text) == (400, 399, 399)
    assert {*tokenizer.bytes_of} == {*range(400)}
    ids = tokenizer.encode("明月， the fox")
    assert [tokenizer.bytes_of[n] for n in ids[:3]] == [c.encode() for c in "明月，"]
    assert len(ids) == 5
    assert facts(folder)["settings"]["vocab_size"] == 400
    assert facts(folder)["settings"]["merge_cjk"] is False


@pytest.mark.hf
def test_transformers_gives_the_same_ids(hf, made, rng):
    from transformers import AutoTokenizer, GPT2TokenizerFast

    folder = made / "run"
    tokenizer = npgpt.load_tokenizer(folder)
    signs = [*(POEM + story(500) + "é “中’s” 12 \t\n한글ひ𠀀😀")]
    texts = [POEM, story(300), CODE, *("".join(rng.choice(signs, 300)) for _ in range(10))]
    for theirs in (
        AutoTokenizer.from_pretrained(folder),
        GPT2TokenizerFast.from_pretrained(folder),
    ):
        assert len(theirs) == 400
        assert [theirs(text)["input_ids"] for text in texts] == [*map(tokenizer.encode, texts)]
        assert theirs.eos_token_id == 399


def test_the_same_text_gives_the_same_files(made, tmp_path):
    out = tmp_path / "run"
    options = (*SMALL, "--steps", 1, "--vocab-size", 400, "--seed", 5)
    assert run("--data", made / "texts", "--out", out, *options) == 0
    assert vocabulary(out) == vocabulary(made / "run")


def test_a_run_goes_on_with_its_vocabulary(made, tmp_path, capsys):
    """Also where the ids have to be made, and held out, once more."""
    whole, out = tmp_path / "whole", made / "run"
    common = (*SMALL, "--steps", 4, "--vocab-size", 400)
    before = vocabulary(out)
    assert run("--data", made / "texts", "--out", whole, *common) == 0
    (out / "ids.safetensors").unlink()
    capsys.readouterr()
    for other in (("--vocab-size", 300), ("--merge-cjk",)):
        sentence = refuse(capsys, "--out", out, "--resume", *other)
        assert f"this run was started with {other[0]} " in sentence
    assert run("--out", out, "--resume", "--vocab-size", 400) == 0
    assert weights(out) == weights(whole)
    assert vocabulary(out) == before == vocabulary(whole)


@pytest.mark.parametrize("special", [[], ["--special"]])
def test_nothing_is_learned_from_what_is_held_out(tmp_path, special):
    text, out = tmp_path / "text.txt", tmp_path / "run"
    end = "<|endoftext|>" if special else ""
    text.write_text(story(1350) + end + story(1350) + "zq" * 150, encoding="utf-8", newline="")
    options = (*SMALL, "--steps", 1, "--vocab-size", 320, *special)
    assert run("--data", text, "--out", out, *options) == 0
    tokenizer, kept = npgpt.load_tokenizer(out), read_tensors(out / "ids.safetensors")
    assert not [token for token in tokenizer.bytes_of.values() if b"zq" in token]
    assert (
        tokenizer.decode(kept["ids"].tolist()) == f"<|endoftext|>{story(1350)}{end}{story(1350)}z"
    )
    assert tokenizer.decode(kept["held_out"].tolist()) == ("zq" * 150)[1:] + "<|endoftext|>"


def test_held_out_texts_are_not_learned_from_and_all_of_the_others_is(tmp_path):
    text, other = write_story(tmp_path), tmp_path / "other.txt"
    other.write_text("zq" * 3000, encoding="utf-8")
    options = (*SMALL, "--steps", 1, "--vocab-size", 265)
    for name, part, known in (("a", ("--val", other), False), ("b", ("--val", text), True)):
        assert run("--data", tmp_path, "--out", tmp_path / name, *part, *options) == 0
        tokens = npgpt.load_tokenizer(tmp_path / name).bytes_of.values()
        assert any(b"zqzq" in token for token in tokens) == known


def test_a_run_among_its_texts_is_resumed(tmp_path):
    write_story(tmp_path)
    out = tmp_path / "run"
    options = (*SMALL, "--steps", 1, "--vocab-size", 300)
    assert run("--data", tmp_path, "--out", out, *options) == 0
    assert run("--out", out, "--resume", "--steps", 2) == 0
    assert facts(out)["step"] == 2


@pytest.mark.parametrize("text", [POEM * 13, CODE * 30])
def test_two_kilobytes_are_enough(tmp_path, text):
    path, out = tmp_path / "text.txt", tmp_path / "run"
    path.write_text(text, encoding="utf-8", newline="")
    assert run("--data", path, "--out", out, *SMALL, "--steps", 1, "--vocab-size", 280) == 0
    assert npgpt.from_pretrained(out).config.vocab_size == 280
    assert npgpt.load_tokenizer(out).decode(npgpt.load_tokenizer(out).encode(text)) == text


@pytest.mark.filterwarnings("default")
def test_a_text_that_gives_fewer_pairs_is_said(tmp_path, capsys):
    path, out = tmp_path / "text.txt", tmp_path / "run"
    path.write_text(story(300) + "中" * 300, encoding="utf-8")
    assert run("--data", path, "--out", out, *SMALL, "--steps", 1, "--vocab-size", 10**12) == 0
    count = len((out / "merges.txt").read_text(encoding="utf-8").splitlines()) - 1
    assert 30 < count < 300
    assert (
        f"warning: --vocab-size 1000000000000: the vocabulary has {257 + count} ids, {count} of "
        "them learned; no further pair occurs twice in the text.\n"
    ) in capsys.readouterr().err
    assert npgpt.from_pretrained(out).config.vocab_size == 257 + count


def test_words_of_chinese_are_learned_when_asked(tmp_path):
    path, out = tmp_path / "text.txt", tmp_path / "run"
    path.write_text(POEM * 13, encoding="utf-8", newline="")
    options = (*SMALL, "--steps", 1, "--vocab-size", 300, "--merge-cjk")
    assert run("--data", path, "--out", out, *options) == 0
    assert len(npgpt.load_tokenizer(out).encode("明月")) == 1


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", "", "text.txt is empty."),
        ("short", "", "has 7 tokens, fewer than one block of 16"),
        (POEM, "--init any", "--init brings a vocabulary, so it does not go with --vocab-size."),
        (POEM, "--vocab-from any", "--vocab-from brings a vocabulary, so it does not go with"),
        (POEM, "--vocab-size 256", "--vocab-size must be at least 257, but is 256."),
    ],
)
def test_what_cannot_be(tmp_path, capsys, content, options, message):
    path, out = tmp_path / "text.txt", tmp_path / "run"
    path.write_text(content, encoding="utf-8")
    sizes = ("--context", 16, "--val-fraction", 0)
    words = ["--vocab-size", 300, *options.split()]
    assert message in refuse(capsys, "--data", path, "--out", out, *sizes, *words)
    assert not out.exists()


def test_without_the_package_one_sentence_names_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    path, out = write_story(tmp_path), tmp_path / "run"
    sentence = refuse(capsys, "--data", path, "--out", out, "--vocab-size", 300)
    assert sentence.endswith(
        'byte pairs needs the package tokenizers: pip install "npgpt[tokenizers]"\n'
    )
    assert not out.exists()
