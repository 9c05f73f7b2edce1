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
        ("tokenizer_config.json", r'{"mask_token": "a\nb"}', r"vocab\.txt lacks a\\nb"),
        (
            "tokenizer_config.json",
            r'{"eos_token": "\ud800"}',
            r"eos_token is '\\ud800', which is no",
        ),
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
    with pytest.raises(ImportError, match=r'pip install "npgpt\[tokenizers\]"'):
        load_word_pieces(write_tiny_bert(tmp_path))


def listed(text, **flags):
    return {"content": text, **dict.fromkeys(("lstrip", "rstrip", "single_word"), False), **flags}


ADDED = {
    "added_tokens.json": lambda n: {"[E1]": n, "New": n + 1},
    "tokenizer_config.json": lambda n: {
        "added_tokens_decoder": {
            f"{n + 1}": listed("New", normalized=True, special=False),
            f"{n}": listed("[E1]", normalized=False, special=True, lstrip=True),
        }
    },
}


@needs_tokenizers
@pytest.mark.parametrize("file", ADDED)
@pytest.mark.parametrize("whole", [False, True])
def test_tokens_that_were_added_are_read(tmp_path, file, whole):
    folder, n = write_tiny_bert(tmp_path), len(PIECES)
    if whole:
        load_word_pieces(folder).tokenizer.save(str(folder / "tokenizer.json"))
    (folder / file).write_text(json.dumps(ADDED[file](n)), encoding="utf-8")
    pieces = load_word_pieces(folder)
    assert pieces.encode("the [E1] new cat")[1:-1] == [5, n, n + 1, 6]
    (folder / "added_tokens.json").write_text(json.dumps({"[E2]": n + 7}), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"added_tokens\.json gives '\[E2\]' the id {n + 7}, but"):
        load_word_pieces(folder)


@needs_tokenizers
@pytest.mark.hf
@pytest.mark.parametrize("file", ADDED)
def test_added_tokens_have_the_ids_of_transformers(hf, tmp_path, file):
    from transformers import BertTokenizer

    folder = write_tiny_bert(tmp_path)
    (folder / file).write_text(json.dumps(ADDED[file](len(PIECES))), encoding="utf-8")
    theirs, ours = BertTokenizer.from_pretrained(folder), load_word_pieces(folder)
    for text in ("the [E1] cat", "the[E1]cat New new news", "[e1] [E1][E1]", TEXT):
        assert ours.encode(text) == theirs(text).input_ids, text


@needs_tokenizers
def test_spaces_at_the_end_of_a_line_are_no_part_of_a_piece(tmp_path):
    folder = write_tiny_bert(
        tmp_path, [f"{piece} \t" if piece == "cat" else piece for piece in PIECES]
    )
    assert load_word_pieces(folder).tokenizer.encode("the cat").tokens[1:-1] == ["the", "cat"]


@needs_tokenizers
def test_settings_stand_above_a_tokenizer_json(tmp_path):
    """As in transformers: here the capitals are kept, which the vocabulary lacks."""
    folder = write_tiny_bert(tmp_path)
    load_word_pieces(folder).tokenizer.save(str(folder / "tokenizer.json"))
    assert load_word_pieces(folder).encode("The cat")[1:-1] == [5, 6]
    config = folder / "tokenizer_config.json"
    config.write_text('{"do_lower_case": false, "tokenize_chinese_chars": null}', encoding="utf-8")
    pieces = load_word_pieces(folder)
    assert pieces.encode("The cat")[1:-1] == [1, 6]
    assert pieces.unknown == (1, "[UNK]")


@needs_tokenizers
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t["post_processor"]["special_tokens"].pop("[SEP]"),
            "the package tokenizers fail",
        ),
        (lambda t: t["model"]["vocab"].pop("[UNK]"), r"Missing \[UNK\] token"),
    ],
)
def test_what_the_package_fails_at_names_the_file(tmp_path, change, message):
    folder = write_tiny_bert(tmp_path)
    content = json.loads(load_word_pieces(folder).tokenizer.to_str())
    change(content)
    content["added_tokens"] = [t for t in content["added_tokens"] if t["content"] != "[UNK]"]
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"tokenizer\.json.*{message}"):
        load_word_pieces(folder).encode("zzz 猫 [MASK]")


@needs_tokenizers
def test_a_vocabulary_that_is_not_utf_8_is_named(tmp_path):
    folder = write_tiny_bert(tmp_path)
    (folder / "vocab.txt").write_bytes(b"[PAD]\n\xff\n")
    with pytest.raises(ValueError, match=r"vocab\.txt is not UTF-8: invalid start byte at byte 6"):
        load_word_pieces(folder)
