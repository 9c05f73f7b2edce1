"""A RoBERTa's vocabulary for `npgpt.fill_mask`: byte pairs between <s> and </s>, and <mask>."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from npgpt import cli
from npgpt.fill_mask import PROG, main
from npgpt.text.word_pieces import ROBERTAS, load_word_pieces
from tests.builders.bert import random_bert
from tests.builders.vocabularies import LINES

tokenizers = pytest.importorskip("tokenizers")
TEXTS = ["Once upon a <mask>.", "<mask>", " the <mask>, café\n 猫", "", "a</s>b <s>"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A small RoBERTa with vocab.json and merges.txt."""
    place = tmp_path_factory.mktemp("roberta")
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(
        LINES, 300, special_tokens=[*ROBERTAS.values()], show_progress=False
    )
    size = trained.get_vocab_size()
    options = {"vocab_size": size, "max_position_embeddings": 40, "pooler": False}
    options["pad_token_id"] = trained.token_to_id("<pad>")
    model = random_bert(np.random.default_rng(0), np.float32, model_type="roberta", **options)
    model.save_pretrained(place)
    trained.save_model(str(place))
    return place


def run(*args: object) -> int:
    return cli.run(PROG, main, [str(arg) for arg in args])


@pytest.mark.hf
@pytest.mark.parametrize("spaced", [False, True])
def test_ids_are_those_of_transformers_from_either_kind_of_file(hf, folder, tmp_path, spaced):
    """The mask is as in the published file; without one, transformers 5 forgets its lstrip."""
    from transformers import AddedToken, RobertaTokenizer

    mask = AddedToken("<mask>", lstrip=True, special=True)
    options = {"mask_token": mask, "add_prefix_space": spaced}
    theirs = RobertaTokenizer.from_pretrained(folder, **options)
    theirs.save_pretrained(tmp_path / "whole")
    assert (tmp_path / "whole" / "tokenizer.json").is_file()
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    settings = json.dumps({"add_prefix_space": spaced, "trim_offsets": True})
    (tmp_path / "tokenizer_config.json").write_text(settings)
    from_merges, whole = load_word_pieces(tmp_path), load_word_pieces(tmp_path / "whole")
    assert whole.source.name == "tokenizer.json"
    whole.tokenizer.pre_tokenizer.add_prefix_space = False
    whole.tokenizer.save(str(tmp_path / "whole" / "tokenizer.json"))  # the settings count
    whole = load_word_pieces(tmp_path / "whole")
    for text in TEXTS:
        assert from_merges.encode(text) == whole.encode(text) == theirs.encode(text)
    assert whole.mask_id == from_merges.mask_id == theirs.mask_token_id


def test_a_text_is_filled_and_printed_without_its_frame(folder, capsys) -> None:
    assert run("Once upon a <mask>.", "--model", folder, "--json", "--top-k", 3) == 0
    found = json.loads(capsys.readouterr().out)
    pieces = load_word_pieces(folder).tokenizer
    start, *_, end = found["ids"]
    assert [pieces.id_to_token(i) for i in (start, end)] == ["<s>", "</s>"]
    assert found["ids"][found["position"]] == pieces.token_to_id("<mask>")
    for each in found["candidates"]:
        assert each["token"] == pieces.decode([each["id"]], skip_special_tokens=False)
        assert "<mask>" not in each["text"].replace(each["token"], "")
        assert each["text"].startswith("Once upon a")
    assert run("Once upon a [MASK].", "--model", folder) == 2
    assert "there is no mask; write <mask> where a token" in capsys.readouterr().err


def test_ids_have_the_mask_of_the_published_vocabulary(folder, capsys) -> None:
    assert run("--ids", "0 5 2", "--model", folder) == 2
    assert "there is no mask; write id 50264 where" in capsys.readouterr().err


def test_a_vocabulary_without_the_frame_is_refused(folder, tmp_path, capsys) -> None:
    vocab = json.loads((folder / "vocab.json").read_text("utf-8"))
    del vocab["<mask>"]
    for name in ("config.json", "merges.txt", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "vocab.json").write_text(json.dumps(vocab), "utf-8")
    assert run("a <mask>", "--model", tmp_path) == 2
    assert "vocab.json lacks <mask>." in capsys.readouterr().err
    (tmp_path / "vocab.json").unlink()
    assert run("a <mask>", "--model", tmp_path) == 2
    assert "merges.txt: the package tokenizers fails: " in capsys.readouterr().err
