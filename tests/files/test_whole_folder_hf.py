"""transformers opens a saved folder as it opened the source, and npgpt what it writes in turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt.files.checkpoint import COMPANIONS, GENERATION_CONFIG, MARK
from npgpt.files.safetensors_file import read_metadata
from tests.builders.bert import write_tiny_bert
from tests.builders.gpt2 import write_tiny_gpt2
from tests.builders.llama import random_llama
from tests.builders.transformer import write_marian

pytestmark = pytest.mark.hf

SETTINGS = {"eos_token_id": [2, 7], "do_sample": True, "top_k": 7}


def write_gpt2(folder: Path) -> None:
    write_tiny_gpt2(folder)
    (folder / GENERATION_CONFIG).write_text(json.dumps(SETTINGS), encoding="utf-8")


def write_llama(folder: Path) -> None:
    """One id per byte in tokenizer.json, a chat template, and two ends of text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    random_llama(np.random.default_rng(0), np.float32, vocab_size=256).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast"}', encoding="utf-8"
    )
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}<{{ m['content'] }}>{% endfor %}", encoding="utf-8"
    )
    (folder / GENERATION_CONFIG).write_text(json.dumps(SETTINGS), encoding="utf-8")


MODELS: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "gpt2": (write_gpt2, "AutoModelForCausalLM", "The fox"),
    "llama": (write_llama, "AutoModelForCausalLM", "The fox"),
    "bert": (write_tiny_bert, "AutoModelForMaskedLM", "the cats sat"),
    "marian": (write_marian, "AutoModelForSeq2SeqLM", "the cat sat on the mat"),
}


@pytest.fixture(params=MODELS)
def case(request, hf, tmp_path) -> tuple[Path, str, str]:
    """A folder, the class of transformers that opens it, a text."""
    write, auto_class, text = MODELS[request.param]
    if request.param == "marian":
        request.getfixturevalue("spm")
    write(tmp_path / "source")
    return tmp_path / "source", auto_class, text


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_transformers_opens_the_saved_folder(case, tmp_path):
    import transformers

    source, auto_class, text = case
    npgpt.from_pretrained(source).save_pretrained(tmp_path / "saved")
    ids, states, settings, chats = [], [], [], []
    for folder in (source, tmp_path / "saved"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        ids.append(tokenizer(text)["input_ids"])
        model, info = getattr(transformers, auto_class).from_pretrained(
            folder, output_loading_info=True
        )
        assert not any(info.values()), info
        states.append({name: value.numpy() for name, value in model.state_dict().items()})
        if model.can_generate():
            settings.append(model.generation_config.to_dict())
        if tokenizer.chat_template:
            chats.append(tokenizer.apply_chat_template([{"content": "hi"}], tokenize=False))
    assert ids[0] == ids[1] != []
    assert settings[1:] == settings[:1]
    assert chats in ([], ["<hi>", "<hi>"])
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        np.testing.assert_array_equal(states[1][name], value)


def test_what_transformers_writes_from_it_is_opened_without_complaint(case, tmp_path):
    import transformers

    source, auto_class, _ = case
    model = npgpt.from_pretrained(source)
    model.save_pretrained(tmp_path / "saved")
    reference = getattr(transformers, auto_class).from_pretrained(tmp_path / "saved")
    for folder in (tmp_path / "theirs", tmp_path / "saved"):
        reference.save_pretrained(folder)
        # It keeps the mark of the configuration and leaves that of the weights out.
        assert MARK in json.loads((folder / "config.json").read_text(encoding="utf-8"))
        assert MARK not in read_metadata(folder / "model.safetensors")
        found = npgpt.from_pretrained(folder)
        for name, param in model.params.items():
            np.testing.assert_array_equal(found.params[name], param)
    assert {path.name for path in (tmp_path / "saved").iterdir()} & {*COMPANIONS}
