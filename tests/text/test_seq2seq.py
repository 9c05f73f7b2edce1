"""Marian's vocabulary, SentencePiece's pieces under vocab.json's numbers; characters' tables."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from npgpt.models.transformer.config import TransformerConfig
from npgpt.text.seq2seq import CharacterTables, load_marian_tokenizer
from tests.builders.transformer import LANGUAGE, SIZES, write_marian


@pytest.fixture(scope="module")
def marian(spm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("marian")
    write_marian(folder)
    return folder


@pytest.fixture
def vocabulary(marian):
    return json.loads((marian / "vocab.json").read_text(encoding="utf-8"))


def test_pieces_get_the_numbers_of_vocab_json(marian, vocabulary) -> None:
    tokenizer = load_marian_tokenizer(marian)
    ids = tokenizer.encode("the cat sat")
    names = {number: piece for piece, number in vocabulary.items()}
    pieces = [names[i] for i in ids]
    assert pieces[-1] == "</s>"
    assert "".join(pieces[:-1]) == "▁the▁cat▁sat"
    assert all(piece in tokenizer.target_pieces.values() for piece in pieces)


def test_what_is_encoded_is_decoded(marian) -> None:
    tokenizer = load_marian_tokenizer(marian)
    for text in ("the old king walked to the river", "a dog"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_chinese_comes_out_without_marks(marian, vocabulary) -> None:
    tokenizer = load_marian_tokenizer(marian)
    pieces = [*tokenizer.target_spm.encode("猫坐在垫子上", out_type=str), "<unk>", "</s>", "<pad>"]
    assert tokenizer.decode([vocabulary[piece] for piece in pieces]) == "猫坐在垫子上"


def test_a_target_is_cut_by_the_targets_own_pieces(marian, vocabulary) -> None:
    tokenizer = load_marian_tokenizer(marian)
    ids = tokenizer.encode_target("猫坐在垫子上")
    assert ids[-1] == vocabulary["</s>"]
    assert tokenizer.decode(ids) == "猫坐在垫子上"
    assert vocabulary["<unk>"] in tokenizer.encode_target("猫Ω")


def test_letters_without_a_piece_are_unknown(marian, vocabulary) -> None:
    ids = load_marian_tokenizer(marian).encode("cat Ωcat")
    assert vocabulary["<unk>"] in ids
    assert ids.count(0) == 1


def test_the_language_to_write_is_one_piece(marian, vocabulary) -> None:
    tokenizer = load_marian_tokenizer(marian)
    ids = tokenizer.encode(f"{LANGUAGE} the cat")
    assert ids == [vocabulary[LANGUAGE], *tokenizer.encode("the cat")]
    assert tokenizer.encode(">>xyz<< the cat")[0] == vocabulary["<unk>"]


def test_an_id_without_a_piece_is_named(marian, vocabulary) -> None:
    with pytest.raises(ValueError, match=f"id {len(vocabulary)} has no piece"):
        load_marian_tokenizer(marian).decode([len(vocabulary)])


def test_a_target_that_is_numbered_apart(marian, tmp_path) -> None:
    shutil.copytree(marian, tmp_path, dirs_exist_ok=True)
    pieces = ["</s>", "<unk>", "猫", "狗"]
    table = {piece: i for i, piece in enumerate(pieces)}
    (tmp_path / "target_vocab.json").write_text(json.dumps(table), encoding="utf-8")
    tokenizer = load_marian_tokenizer(tmp_path)
    assert tokenizer.decode([3, 2, 0]) == "狗猫"
    assert set(tokenizer.encode_target("狗猫狗")) <= {0, 1, 2, 3}
    assert tokenizer.encode("the cat") == load_marian_tokenizer(marian).encode("the cat")


@pytest.mark.parametrize("file", ["source.spm", "target.spm", "vocab.json"])
def test_a_missing_file_is_named(marian, tmp_path, file) -> None:
    shutil.copytree(marian, tmp_path, dirs_exist_ok=True)
    (tmp_path / file).unlink()
    with pytest.raises(FileNotFoundError, match=f"{file} is missing"):
        load_marian_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("source.spm", b"junk", "source.spm is no SentencePiece model"),
        ("vocab.json", b"[]", "vocab.json: is no table from pieces to whole numbers"),
        ("vocab.json", b'{"</s>": "0"}', "is no table from pieces to whole numbers"),
        ("vocab.json", b'{"</s>": 0}', "vocab.json: has no '<unk>'"),
        ("vocab.json", b"{", "is not valid JSON"),
    ],
)
def test_a_wrong_file_is_named(marian, tmp_path, file, content, says) -> None:
    shutil.copytree(marian, tmp_path, dirs_exist_ok=True)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=r"\.$|JSON") as caught:
        load_marian_tokenizer(tmp_path)
    assert says in str(caught.value)


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ImportError, match=r'pip install "npgpt\[spm\]"'):
        load_marian_tokenizer(tmp_path)


@pytest.mark.hf
@pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses
def test_ids_and_text_are_those_of_transformers(hf, marian) -> None:
    from transformers import MarianTokenizer

    theirs, ours = MarianTokenizer.from_pretrained(marian), load_marian_tokenizer(marian)
    for text in ("the cat sat on the mat", f"{LANGUAGE} the sea", "Ω, and the sun", " a  dog "):
        ids = ours.encode(text)
        assert ids == theirs(text)["input_ids"]
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True).strip()


def test_character_tables_need_both_tables() -> None:
    with pytest.raises(ValueError, match="no grapheme_chars and phoneme_chars"):
        CharacterTables(TransformerConfig.from_dict({**SIZES, "grapheme_chars": "____ab"}))
