"""Texts become ids, which are kept beside them as long as they are right."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from npgpt.files.io import replacing
from npgpt.text import corpus as data
from npgpt.text.tokenizer import Tokenizer
from npgpt.train.vocabulary import byte_tokenizer

TEXT = "the cat sat – on the mat\r\n"
IDS = list(TEXT.encode())


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT.encode())
    return path


def kept(folder):
    return sorted(folder.glob("*.ids.npy"))


def spied(tokenizer):
    """The tokenizer, and a list that grows by every text it encodes."""
    seen, encode = [], tokenizer.encode

    def spy(text, **options):
        seen.append(text)
        return encode(text, **options)

    tokenizer.encode = spy
    return tokenizer, seen


def test_a_file_or_all_text_files_below_a_folder_by_name(tmp_path):
    for name in ("b.txt", "a.txt", "deep/c.txt", "note.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x", encoding="utf-8")
    found = [path.relative_to(tmp_path).as_posix() for path in data.text_files(tmp_path)]
    assert found == ["a.txt", "b.txt", "deep/c.txt"]
    assert data.text_files(tmp_path / "note.md") == [tmp_path / "note.md"]


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
    ids = data.read_ids([file, other], byte_tokenizer(), end_of_text=256)
    assert ids.tolist() == [256, *IDS, 256, *b"<|endoftext|>", 256]
    assert ids.dtype == np.uint16
    special = data.read_ids([other], byte_tokenizer(), end_of_text=None, special=True)
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


def test_ids_are_kept_beside_the_file_and_read_from_there(file):
    tokenizer, seen = spied(byte_tokenizer())
    for _ in range(2):
        assert data.read_ids([file], tokenizer).tolist() == IDS
    assert seen == [TEXT]
    assert len(kept(file.parent)) == 1


def test_a_changed_file_is_encoded_anew_and_its_former_ids_go(file):
    tokenizer = byte_tokenizer()
    data.read_ids([file], tokenizer)
    before = kept(file.parent)
    file.write_bytes(TEXT.encode()[::-1].replace(b"\x93\x80\xe2", b"-"))  # as new, as long, no date
    assert data.read_ids([file], tokenizer).tolist() == list(file.read_bytes())
    assert len(kept(file.parent)) == 1
    assert kept(file.parent) != before


def test_another_vocabulary_has_ids_of_its_own(file):
    data.read_ids([file], byte_tokenizer())
    swapped = {bytes([b]): 255 - b for b in range(256)}
    for specials in ({}, {"cat": 300}):
        tokenizer = Tokenizer("bytes", mergeable_ranks=swapped, special_tokens=specials)
        ids = data.read_ids([file], tokenizer, special=True)
        assert ids.tolist() == tokenizer.encode(TEXT, allowed_special="all")
    assert len(kept(file.parent)) == 3
    assert data.read_ids([file], byte_tokenizer()).tolist() == IDS


@pytest.mark.parametrize("damage", [b"", b"no array", None, np.float32, (2, 5)])
def test_damaged_ids_are_made_anew(file, damage):
    data.read_ids([file], byte_tokenizer())
    path = kept(file.parent)[0]
    if damage is None:
        path.write_bytes(path.read_bytes()[:-1])
    elif isinstance(damage, bytes):
        path.write_bytes(damage)
    elif isinstance(damage, tuple):
        np.save(path, np.zeros(damage, np.uint16))
    else:
        np.save(path, np.zeros(3, damage))
    assert data.read_ids([file], byte_tokenizer()).tolist() == IDS
    assert np.load(path).tolist() == IDS


def test_ids_go_to_the_spare_folder_where_the_texts_cannot_be_written(file, tmp_path, monkeypatch):
    @contextmanager
    def guarded(path):
        if path.parent == file.parent:
            raise PermissionError("read-only")
        with replacing(path) as temporaries:
            yield temporaries

    monkeypatch.setattr(data, "replacing", guarded)
    spare = tmp_path / "spare"
    spare.mkdir()
    tokenizer, seen = spied(byte_tokenizer())
    for _ in range(2):
        assert data.read_ids([file], tokenizer, spare_folder=spare).tolist() == IDS
    assert seen == [TEXT]
    assert (len(kept(file.parent)), len(kept(spare))) == (0, 1)


def test_ids_that_can_be_kept_nowhere_are_right_too(tmp_path):
    path = tmp_path / f"{'long' * 60}.txt"  # a name that leaves no room for a longer one
    path.write_bytes(TEXT.encode())
    assert data.read_ids([path], byte_tokenizer()).tolist() == IDS
    assert list(tmp_path.iterdir()) == [path]


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
