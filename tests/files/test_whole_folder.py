"""save_pretrained gives a folder that commands and tokenizers open, and replaces no one else's."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import npgpt
from npgpt import cli, generate
from npgpt.files.checkpoint import COMPANIONS, TRAINING_FILES, VOCABULARY
from npgpt.models.gpt2.model import GPT2
from npgpt.train.log import LOG
from npgpt.train.state import STATE
from tests.builders.checkpoints import SMALL, random_params
from tests.builders.gguf import llama_file, write_gguf
from tests.builders.gpt2 import write_byte_vocabulary, write_tiny_gpt2
from tests.builders.llama import random_llama
from tests.builders.transformer import random_transformer


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A model's folder, with what belongs to it and what does not."""
    folder = write_tiny_gpt2(tmp_path / "source")
    for name in ("generation_config.json", "tokenizer_config.json"):
        (folder / name).write_text('{"eos_token_id": 256}', encoding="utf-8")
    (folder / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    for name in ("README.md", "loss.png", "pytorch_model.bin", "optimizer.pt"):
        (folder / name).write_text("of the source alone", encoding="utf-8")
    return folder


def test_vocabulary_and_generation_settings_come_along_and_nothing_else(source, tmp_path):
    npgpt.from_pretrained(source).save_pretrained(tmp_path / "new")
    companions = names(source) & {*COMPANIONS}
    assert names(tmp_path / "new") == {"config.json", "model.safetensors", *companions}
    for name in companions:
        assert (tmp_path / "new" / name).read_bytes() == (source / name).read_bytes()
    assert len(companions) == 5


def test_the_saved_folder_generates_the_same(source, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(source.parent)
    npgpt.from_pretrained("./source").save_pretrained("saved")
    texts = []
    for name in ("source", "saved"):
        command = ["The fox", "--model", f"./{name}", "--max-new-tokens", "9"]
        assert cli.run("generate", generate.main, command) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != ""


def test_the_source_is_known_from_another_folder_too(source, tmp_path, monkeypatch):
    monkeypatch.chdir(source)
    model = npgpt.from_pretrained(".")
    monkeypatch.chdir(tmp_path)
    model.save_pretrained("new")
    assert "vocab.json" in names(tmp_path / "new")


def test_a_model_is_saved_again_where_it_came_from_and_where_it_was_saved(source, tmp_path):
    model = npgpt.from_pretrained(source)
    model.params["wte.weight"] += 1
    before = names(source)
    for folder in (source, tmp_path / "new", tmp_path / "new", source):
        model.save_pretrained(folder)
        assert np.array_equal(
            npgpt.from_pretrained(folder).params["wte.weight"], model.params["wte.weight"]
        )
    assert names(source) == before


def test_saving_twice_gives_the_same_bytes(source, tmp_path):
    model = npgpt.from_pretrained(source)
    model.save_pretrained(tmp_path / "a")
    npgpt.from_pretrained(tmp_path / "a").save_pretrained(tmp_path / "b")
    for name in names(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


@pytest.mark.parametrize("change", ["another file", "another content", "no model there"])
def test_another_vocabulary_is_refused_unless_told(source, tmp_path, change):
    model = npgpt.from_pretrained(source)
    other = write_tiny_gpt2(tmp_path / "other", seed=1)
    shutil.copy(source / "tokenizer_config.json", other)  # one that is the same
    (other / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    name = "tokenizer.json" if change == "another file" else "vocab.json"
    (other / name).write_text("{}", encoding="utf-8")
    (other / "generation_config.json").write_text("{}", encoding="utf-8")
    if change == "no model there":
        (other / "config.json").unlink()
    before = {path.name: path.read_bytes() for path in other.iterdir()}
    with pytest.raises(ValueError, match=rf"other holds another vocabulary \({name}\): ") as caught:
        model.save_pretrained(other)
    assert str(caught.value).endswith("choose another folder, or pass overwrite=True.")
    assert {path.name: path.read_bytes() for path in other.iterdir()} == before
    model.save_pretrained(other, overwrite=True)
    for name in COMPANIONS:
        assert (other / name).exists() is (source / name).exists()
    assert (other / "vocab.json").read_bytes() == (source / "vocab.json").read_bytes()


@pytest.mark.parametrize("name", TRAINING_FILES)
def test_a_training_run_is_refused_unless_told(source, tmp_path, name):
    model = npgpt.from_pretrained(source)
    (source / name).touch()
    for folder in (source, tmp_path / "source"):
        with pytest.raises(ValueError, match=rf"source holds a training run \({name}\): choose"):
            model.save_pretrained(folder)
    model.save_pretrained(source, overwrite=True)
    assert (source / name).exists()


def test_the_files_of_a_training_run_are_called_as_npgpt_train_calls_them():
    assert TRAINING_FILES == (STATE, LOG)


def test_a_model_made_in_memory_may_be_saved_again_beside_its_vocabulary(tmp_path):
    model = GPT2(SMALL, random_params())
    write_byte_vocabulary(tmp_path)  # there before the first save
    for _ in range(2):
        model.save_pretrained(tmp_path)
        assert names(tmp_path) == {"config.json", "model.safetensors", "vocab.json", "merges.txt"}
    other = GPT2(replace(SMALL, n_head=3), model.params)
    with pytest.raises(ValueError, match=r"holds another vocabulary \(vocab\.json\)"):
        other.save_pretrained(tmp_path)
    other.save_pretrained(tmp_path, overwrite=True)  # whose vocabulary is left
    assert npgpt.from_pretrained(tmp_path).config.n_head == 3
    assert "vocab.json" in names(tmp_path)


def test_a_gguf_file_keeps_its_vocabulary_and_that_is_said(rng, tmp_path):
    path = write_gguf(tmp_path / "x.gguf", *llama_file(random_llama(rng, np.float32)))
    model = npgpt.from_pretrained(path)
    with pytest.warns(UserWarning, match=r"without a vocabulary, since .*x\.gguf keeps") as caught:
        model.save_pretrained(tmp_path / "new")
    assert caught[0].filename == __file__
    assert names(tmp_path / "new") == {"config.json", "model.safetensors"}


def test_a_source_that_is_gone_is_said(source, tmp_path):
    model = npgpt.from_pretrained(source)
    shutil.rmtree(source)
    with pytest.warns(
        UserWarning, match=r"without a vocabulary, since .*source is no longer there"
    ):
        model.save_pretrained(tmp_path / "new")


def test_changed_generation_settings_are_saved_where_they_are_read(rng, tmp_path):
    random_transformer(rng, np.float32, model_type="bart").save_pretrained(tmp_path)
    said = {"num_beams": 4, "max_length": 12, "no_repeat_ngram_size": 3, "eos_token_id": 2}
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps(said), encoding="utf-8")
    before = path.read_bytes()
    model = npgpt.from_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    assert path.read_bytes() == before
    model.generation = replace(model.generation, num_beams=2, length_penalty=0.5)
    for folder in (tmp_path, tmp_path / "new"):
        model.save_pretrained(folder)
        found = npgpt.from_pretrained(folder).generation
        assert (found.num_beams, found.max_length, found.length_penalty) == (2, 12, 0.5)
        written = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
        assert written == {**said, "num_beams": 2, "length_penalty": 0.5}


def test_what_a_vocabulary_consists_of_is_listed_once():
    assert len({*VOCABULARY}) == len(VOCABULARY)
    assert {"tokenizer.json", "vocab.json", "source.spm", "target_vocab.json"} < {*VOCABULARY}
