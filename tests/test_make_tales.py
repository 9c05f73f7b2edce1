"""The scripts that prepare the text and the vocabulary of the model `tales`, on text made here."""

from importlib import import_module
from itertools import count
from json import dumps, loads
from pathlib import Path

import pytest

from npgpt.text.byte_pairs import byte_alphabet
from npgpt.text.tokenizer import tokenizer_from_folder

WEIGHTS = Path(__file__).parents[1] / "weights"

# Lines are full at 40 characters: the next word would not have fitted.
BOOK = """\
THE STONE

CONTENTS
CHAPTER I

CHAPTER I

‘Who is there?’ said the_ old _stone, and
nobody answered it--only the wind...

TO MY AUNT

The wind sang:[1]

    Roll,   stone, roll,
      Down the knoll.

[1] Anonymous.

* * * * *

It rolled over the sharp edge of the old
[Illustration: the
well [full page]]

12
well, and fell. “That was—deep,” it said.

From the German.

NOTE.

Nothing of this is true.
"""


@pytest.fixture
def text(monkeypatch):
    monkeypatch.syspath_prepend(WEIGHTS)
    return import_module("tales_text")


@pytest.fixture
def make(monkeypatch):
    monkeypatch.syspath_prepend(WEIGHTS)
    return import_module("make_tales")


def test_a_story_starts_after_the_contents_and_ends_before_the_notes(text):
    lines = text.story(BOOK.split("\n"), "pg0")
    assert lines[:3] == ["CHAPTER I", "", "‘Who is there?’ said the_ old _stone, and"]
    assert [line for line in lines if line][-1] == "From the German."


def test_a_book_without_its_first_line_is_refused(text):
    with pytest.raises(ValueError, match="pg28 has no line 'The Cock and the Pearl'"):
        text.story(BOOK.split("\n"), "pg28")


def test_cleaning_keeps_the_story_alone(text):
    assert text.clean(text.story(BOOK.split("\n"), "pg0")) == (
        "CHAPTER I\n\n"
        "‘Who is there?’ said the old stone, and nobody answered it--only the wind...\n\n"
        "The wind sang:\n\n"
        "Roll, stone, roll,\nDown the knoll.\n\n"
        "It rolled over the sharp edge of the old well, and fell. “That was—deep,” it said.\n"
    )


def test_a_book_with_its_author_alone_above_it_starts_below(text):
    book = ["THE STONE", "", "by Édith Ny", "", "I", "It fell."]
    assert text.story(book, "pg0") == ["", "I", "It fell."]


def test_quotes_and_dashes_of_a_typewriter(text):
    assert text.ascii_quotes("“It’s—‘an’ `old` one…” 1–2, café") == (
        "\"It's--'an' 'old' one...\" 1-2, café"
    )


def test_prose_is_joined_and_verse_is_not(text):
    prose = ["The king went out to look for a bird", "That nobody had seen."]
    assert text.verse(prose, 40) == []
    assert text.verse(prose, 60) == prose
    assert text.verse([line.lower() for line in prose], 60) == [line.lower() for line in prose]


def test_the_rest_of_a_long_verse_goes_back_to_its_line(text):
    lines = ["Now this is the Law of the old forest, as true as", "the sky;", "Keep it or go."]
    whole = ["Now this is the Law of the old forest, as true as the sky;", "Keep it or go."]
    assert text.verse(lines, 72) == whole
    assert text.verse(lines[:2], 72) == []


@pytest.mark.parametrize(
    ("before", "after", "torn"),
    [
        ("he found the", "door open.", True),
        ("the pump-", "kin", True),
        ("He came.", "and went.", False),
        ("he found", "Alice.", False),
        ("Roll,\nstone", "said he.", False),
    ],
)
def test_only_torn_prose_is_mended(text, before, after, torn):
    assert text.is_torn(before, after) is torn


def test_the_vocabulary_is_cut_after_its_first_ids(make, tmp_path):
    source, folder = tmp_path / "gpt2", tmp_path / "cut"
    source.mkdir()
    vocab = dict(zip([*byte_alphabet(), "th", "he", "the"], count(), strict=False))
    (source / "vocab.json").write_text(dumps(vocab), encoding="utf-8")
    (source / "merges.txt").write_text("#version: 0.2\nt h\nh e\nth e\n", encoding="utf-8")
    make.write_vocabulary(source, folder, 258)
    assert (folder / "merges.txt").read_text(encoding="utf-8") == "#version: 0.2\nt h\nh e\n"
    kept = loads((folder / "vocab.json").read_text(encoding="utf-8"))
    assert kept.pop("<|endoftext|>") == 258
    assert kept == {token: number for token, number in vocab.items() if number < 258}
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer.encode("the") == [vocab["th"], vocab["e"]]
    assert tokenizer.encode("<|endoftext|>", allowed_special="all") == [258]
    with pytest.raises(ValueError, match="--ids 259 must be from 256, the single bytes, to 258"):
        make.write_vocabulary(source, folder, 259)


@pytest.mark.real
def test_text_keeps_the_ids_of_gpt2(make, data_dir, tmp_path):
    make.write_vocabulary(data_dir / "gpt2-vocab", tmp_path, 8192)
    ids = tokenizer_from_folder(tmp_path).encode("The cat sat on the")
    assert ids == [464, 3797, 3332, 319, 262]


@pytest.mark.hf
def test_transformers_reads_the_vocabulary_alike(make, hf, tmp_path):
    from transformers import AutoTokenizer

    source, folder = tmp_path / "gpt2", tmp_path / "cut"
    source.mkdir()
    vocab = dict(zip([*byte_alphabet(), "th", "he", "the"], count(), strict=False))
    (source / "vocab.json").write_text(dumps(vocab), encoding="utf-8")
    (source / "merges.txt").write_text("t h\nh e\nth e\n", encoding="utf-8")
    make.write_vocabulary(source, folder, 258)
    theirs, sentence = AutoTokenizer.from_pretrained(folder), "the 'thé'<|endoftext|>\n\n"
    assert theirs.eos_token_id == 258
    ours = tokenizer_from_folder(folder).encode(sentence, allowed_special="all")
    assert theirs(sentence)["input_ids"] == ours


def test_books_go_where_they_belong(make, tmp_path, capsys):
    """Two folders; the held-out ones twice, with their own quotes and with ASCII ones."""
    vocab = tmp_path / "gpt2"
    vocab.mkdir()
    ids = dict(zip([*byte_alphabet(), *(f"x{n}" for n in range(8000))], count(), strict=False))
    (vocab / "vocab.json").write_text(dumps(ids), encoding="utf-8")
    (vocab / "merges.txt").write_text("", encoding="utf-8")
    for folder, name in (("a", "pg0-stone"), ("a", "pg11-alice"), ("b", "pg1154-doctor")):
        path = tmp_path / folder / f"{name}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("TITLE\n\nby Ny\n\n“Well,” it said.\n", encoding="utf-8")
    (tmp_path / "a" / "shakespeare.txt").write_text("no dash, no book", encoding="utf-8")
    corpus = [str(tmp_path / "a"), str(tmp_path / "b")]
    out = tmp_path / "out"
    arguments = ["--corpus", *corpus, "--vocab", str(vocab), "--out", str(out), "--ids", "300"]
    assert make.main(arguments) == 0
    written = {
        path.relative_to(out).as_posix(): path.read_text("utf-8") for path in out.rglob("*.txt")
    }
    del written["vocab-300/merges.txt"]
    own, plain = "“Well,” it said.\n", '"Well," it said.\n'
    assert written == {
        "train/pg0-stone.txt": own,
        "held-out/pg11-alice.txt": own,
        "held-out-ascii/pg11-alice.txt": plain,
        "held-out-strangers/pg1154-doctor.txt": own,
        "held-out-strangers-ascii/pg1154-doctor.txt": plain,
    }
    assert "held-out-strangers " in capsys.readouterr().out


def test_without_books_the_command_says_so(make, tmp_path):
    arguments = ["--corpus", str(tmp_path), "--vocab", str(tmp_path), "--out", str(tmp_path)]
    with pytest.raises(FileNotFoundError, match=r"has no books, pgNUMBER-TITLE\.txt"):
        make.main(arguments)
