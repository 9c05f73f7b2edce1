"""BERT's word pieces: from tokenizer.json or vocab.txt, the same ids, and what is refused."""

from __future__ import annotations

import codecs
import importlib.util
import json
import sys

import pytest

from npgpt.text.word_pieces import load_word_pieces
from tests.builders.bert import PIECES, write_tiny_bert

needs_tokenizers = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None, reason='needs: pip install "npgpt[bert]"'
)
TEXT = "The Café [MASK] sat, cats 猫."


@needs_tokenizers
def test_vocab_txt_has_berts_own_steps(tmp_path):
    pieces = load_word_pieces(write_tiny_bert(tmp_path))
    encoded = pieces.tokenizer.encode(TEXT)
    assert encoded.tokens == [
        *("[CLS]", "the", "cafe", "[MASK]", "sat", "[UNK]", "cat", "##s", "猫", ".", "[SEP]")
    ]
    assert [PIECES[i] for i in encoded.ids] == encoded.tokens
    assert (pieces.mask_token, pieces.mask_id) == ("[MASK]", 4)
    pair = pieces.tokenizer.encode("the cat", "sat")
    assert pair.tokens == ["[CLS]", "the", "cat", "[SEP]", "sat", "[SEP]"]
    assert pair.type_ids == [0, 0, 0, 0, 1, 1]


@needs_tokenizers
def test_tokenizer_json_gives_the_same_and_neither_pads_nor_cuts(tmp_path):
    folder = write_tiny_bert(tmp_path)
    pieces = load_word_pieces(folder)
    wanted = pieces.tokenizer.encode(TEXT).ids
    pieces.tokenizer.enable_padding(length=30)
    pieces.tokenizer.enable_truncation(4)
    pieces.tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").unlink()
    assert load_word_pieces(folder).tokenizer.encode(TEXT).ids == wanted


@needs_tokenizers
@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json", "tokenizer_config.json"])
def test_a_byte_order_mark_is_not_read(tmp_path, name):
    folder = write_tiny_bert(tmp_path)
    (folder / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    pieces = load_word_pieces(folder)
    if name == "tokenizer.json":
        pieces.tokenizer.save(str(folder / name))
    (folder / name).write_bytes(codecs.BOM_UTF8 + (folder / name).read_bytes())
    read = load_word_pieces(folder).tokenizer
    assert read.get_vocab() == pieces.tokenizer.get_vocab()
    assert read.encode(TEXT).ids == pieces.tokenizer.encode(TEXT).ids


@needs_tokenizers
def test_settings_of_the_folder(tmp_path):
    settings = {"do_lower_case": False, "mask_token": {"content": "<mask>"}}
    folder = write_tiny_bert(tmp_path, pieces=["<mask>" if p == "[MASK]" else p for p in PIECES])
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    pieces = load_word_pieces(folder)
    assert pieces.mask_id == 4
    assert pieces.tokenizer.encode("The <mask> cat").tokens[1:-1] == ["[UNK]", "<mask>", "cat"]


@needs_tokenizers
@pytest.mark.hf
@pytest.mark.usefixtures("hf")
def test_ids_are_those_of_transformers(tmp_path):
    from transformers import BertTokenizerFast

    folder = write_tiny_bert(tmp_path)
    theirs = BertTokenizerFast.from_pretrained(folder)
    ours = load_word_pieces(folder).tokenizer
    for text in (TEXT, "", "  the\tcat's ##s\u0000\ufffd ", "[UNK] the[MASK]cat [SEP]"):
        assert ours.encode(text).ids == theirs(text).input_ids, text


@needs_tokenizers
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("vocab.txt", None, "has neither tokenizer.json nor vocab.txt"),
        ("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n", r"vocab\.txt lacks \[MASK\], without which"),
        ("vocab.txt", "\n".join([*PIECES, "cat"]), "1 of its lines stand there twice"),
        ("tokenizer.json", "{}", r"tokenizer\.json is not a tokenizer that can be read"),
        ("tokenizer_config.json", "[]", r"tokenizer_config\.json has to be a JSON object"),
        ("tokenizer_config.json", '{"mask_token": "<m>"}', r"vocab\.txt lacks <m>"),
    ],
)
def test_what_cannot_be_read(tmp_path, file, content, message):
    folder = write_tiny_bert(tmp_path)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content, encoding="utf-8")
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        load_word_pieces(folder)
    assert "\n" not in str(caught.value)


@needs_tokenizers
def test_a_tokenizer_without_a_mask(tmp_path):
    folder = write_tiny_bert(tmp_path)
    load_word_pieces(folder).tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"mask_token": "<m>"}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"tokenizer\.json has no mask token '<m>'"):
        load_word_pieces(folder)


def test_without_the_package_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r'pip install "npgpt\[bert\]"'):
        load_word_pieces(write_tiny_bert(tmp_path))
