"""Texts become ids, the same ones as long as nothing changes that decides about them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npgpt.text import corpus as data
from npgpt.text.learning import tokenizer_of
from npgpt.text.tokenizer import Tokenizer

TEXT = "the cat sat – on the mat\r\n"
IDS = list(TEXT.encode())


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT.encode())
    return path


def test_a_file_or_all_text_files_below_a_folder_by_name(tmp_path):
    for name in ("b.txt", "a.txt", "deep/c.txt", "note.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x", encoding="utf-8")
    found = [path.relative_to(tmp_path).as_posix() for path in data.text_files(tmp_path)]
    assert found == ["a.txt", "b.txt", "deep/c.txt"]
    assert data.text_files(tmp_path / "note.md") == [tmp_path / "note.md"]


def test_the_same_files_in_the_same_order_on_every_system(tmp_path, monkeypatch):
    """Paths compare otherwise on Windows, so they are not compared; macOS makes `._a.txt`."""
    names = ["B.txt", "a.TXT", "a.txt.md", "d/C.txt", "d/a.Txt", "c.txt", "._a.txt", ".git/x.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x", encoding="utf-8")
    monkeypatch.setattr(type(tmp_path), "__lt__", lambda one, other: NotImplemented)
    found = [path.relative_to(tmp_path).as_posix() for path in data.text_files(tmp_path)]
    assert found == ["B.txt", "a.TXT", "c.txt", "d/C.txt", "d/a.Txt"]


@pytest.mark.parametrize("beside", ["config.json", "vocab.json", "tokenizer.json"])
def test_the_vocabulary_of_a_model_is_no_text(tmp_path, beside):
    for name in ("merges.txt", "run/a.txt", "run/merges.txt", "run/vocab.txt", f"run/{beside}"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x", encoding="utf-8")
    found = [path.relative_to(tmp_path).as_posix() for path in data.text_files(tmp_path)]
    assert found == ["merges.txt", "run/a.txt"]


def test_the_home_folder_holds_texts_too(tmp_path, file, monkeypatch):
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    assert data.text_files("~/text.txt") == data.text_files("~") == [file]


def test_paths_without_text_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none is not there; name a text file"):
        data.text_files(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"holds no \.txt file"):
        data.text_files(tmp_path)


def test_files_that_are_no_text_are_refused(file):
    file.write_bytes("naïve".encode("latin-1"))
    with pytest.raises(ValueError, match=r"text\.txt is not UTF-8: .* at byte 2; convert"):
        data.read_text(file)
    file.write_bytes(b"")
    with pytest.raises(ValueError, match=r"text\.txt is empty"):
        data.read_text(file)


def test_every_byte_becomes_an_id_and_texts_stand_between_marks(file):
    other = file.with_name("other.txt")
    other.write_text("<|endoftext|>", encoding="utf-8")
    ids = data.read_ids([file, other], tokenizer_of(), end_of_text=256)
    assert ids.tolist() == [256, *IDS, 256, *b"<|endoftext|>", 256]
    assert ids.dtype == np.uint16
    special = data.read_ids([other], tokenizer_of(), end_of_text=None, special=True)
    assert special.tolist() == [256]


def test_large_vocabularies_take_four_bytes(file):
    ranks = {bytes([b]): b for b in range(255)} | {b"\xff": 2**16}
    ids = data.read_ids([file], Tokenizer("large", mergeable_ranks=ranks, special_tokens={}))
    assert ids.dtype == np.uint32
    assert ids.tolist() == IDS


def test_a_text_that_the_vocabulary_cannot_write_is_named(file):
    poor = Tokenizer("poor", mergeable_ranks={b"a": 0}, special_tokens={})
    with pytest.raises(ValueError, match=r"text\.txt: "):
        data.read_ids([file], poor)


def test_nothing_is_left_beside_the_texts(file):
    data.read_ids([file], tokenizer_of())
    data.source_key(tokenizer_of(), False, [file])
    assert list(file.parent.iterdir()) == [file]


def test_whatever_decides_about_ids_changes_their_source(file):
    other = file.with_name("other.txt")
    other.write_bytes(file.read_bytes()[::-1])
    swapped = {bytes([b]): 255 - b for b in range(256)}
    vocabularies = [
        Tokenizer("bytes", mergeable_ranks=swapped, special_tokens=specials)
        for specials in ({}, {"cat": 300})
    ]
    sources: list[tuple[Any, ...]] = [
        (tokenizer_of(), False, [file]),
        (tokenizer_of(), True, [file]),
        (tokenizer_of(), False, [other]),  # as new, as long, no date
        (tokenizer_of(), False, [file, other]),
        (tokenizer_of(), False, [file], [other]),
        *((vocabulary, False, [file]) for vocabulary in vocabularies),
    ]
    keys = [data.source_key(*source) for source in sources]
    assert len(set(keys)) == len(keys)
    moved = file.rename(file.with_name("moved.txt"))
    assert data.source_key(tokenizer_of(), False, [moved]) == keys[0]


def test_the_fingerprint_tells_texts_and_their_border_apart():
    one, two = np.array([1, 2, 3], np.uint16), np.array([4, 5], np.uint16)
    key = data.ids_key(one, two)
    assert data.ids_key(one.astype(np.uint32), two) == key
    others = [(two, one), (one[:2], np.array([3, 4, 5])), (one, two[:1]), (one, two[::-1])]
    assert key not in {data.ids_key(*other) for other in others}


def test_bytes_of_each_id():
    ranks = {bytes([b]): b for b in range(256)} | {b"the": 256}
    tokenizer = Tokenizer("few", mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 300})
    sizes = data.token_sizes(tokenizer, 302)
    assert sizes.tolist() == [1] * 256 + [3] + [0] * 45
    assert data.token_sizes(tokenizer, 200).tolist() == [1] * 200
    ids = tokenizer.encode("the – cat")
    assert sizes[ids].sum() == len("the – cat".encode())
