"""config.json of each architecture, generation_config.json, and the index of several files.

Right is, beyond what holds for every file: tables of logits of one text, [T, V]; new tokens that
the vocabulary has; behind a changed index, the very parameters of the sound one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import npgpt
from npgpt.describe import command as describe
from npgpt.files.checkpoint import GENERATION_CONFIG
from npgpt.files.foreign import INDEX, WEIGHTS
from npgpt.files.safetensors_file import read_tensors, write_tensors
from npgpt.models.bert.model import BERT
from npgpt.models.transformer.model import Transformer
from tests.builders.bert import random_bert
from tests.builders.gpt2 import random_gpt2
from tests.builders.gpt_neo import random_gpt_neo
from tests.builders.llama import random_llama
from tests.builders.transformer import DIALECTS, random_transformer
from tests.fuzz.changes import change_folder
from tests.fuzz.harness import Change, Found, Kind

MOST = 32  # new tokens, where a configuration has positions for more
IDS = [3, 1, 4, 1]
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 11,
}
MODELS: dict[str, Callable[[np.random.Generator], Any]] = {
    "gpt2": lambda rng: random_gpt2(rng, np.float32),
    "llama": lambda rng: random_llama(rng, np.float32, rope_scaling=LLAMA3),
    "bert": lambda rng: random_bert(rng, np.float32),
    "roberta": lambda rng: random_bert(rng, np.float32, model_type="roberta"),
    "distilbert": lambda rng: random_bert(rng, np.float32, model_type="distilbert"),
    "gpt_neo": lambda rng: random_gpt_neo(rng, np.float32),
    "bart": lambda rng: random_transformer(rng, np.float32, **DIALECTS["bart"]),
    "marian": lambda rng: random_transformer(rng, np.float32, **DIALECTS["two tables"]),
    "transformer": lambda rng: random_transformer(rng, np.float32, num_beams=2),
}
GENERATION = {
    "bos_token_id": 1,
    "eos_token_id": [2, 5],
    "pad_token_id": 18,
    "max_length": 9,
    "num_beams": 2,
    "length_penalty": 0.9,
    "early_stopping": True,
    "bad_words_ids": [[18]],
    "forced_eos_token_id": 2,
    "do_sample": False,
    "transformers_version": "4.48.0",
}


def make(model: str, generation: Mapping[str, Any] | None = None) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        MODELS[model](np.random.default_rng(0)).save_pretrained(folder)
        if generation is not None:
            (folder / GENERATION_CONFIG).write_text(json.dumps(generation), encoding="utf-8")

    return write


def load(folder: Path) -> Any:
    model = npgpt.from_pretrained(folder)
    describe.main([str(folder)])
    return model


def run(model: Any) -> Found:
    if isinstance(model, BERT):
        return {"logits": model(IDS), "params": len(model.params)}
    if isinstance(model, Transformer):
        most = None if model.config.max_position_embeddings <= MOST else MOST
        tokens = model.generate(IDS, max_new_tokens=most)
        logits = model(IDS, IDS)
    else:
        logits, tokens = model(IDS), [*model.generate(IDS, 5)]
    assert logits.shape[0] == len(IDS)
    assert all(0 <= token < logits.shape[1] for token in tokens)
    return {"logits": logits, "tokens": tokens}


def make_shards(folder: Path) -> None:
    make("gpt2")(folder)
    tensors = read_tensors(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    files = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    names = [*tensors][::2], [*tensors][1::2]
    for file, part in zip(files, names, strict=True):
        write_tensors(folder / file, {name: tensors[name] for name in part})
    weight_map = {name: file for file, part in zip(files, names, strict=True) for name in part}
    index = {"metadata": {"total_size": 99}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")


def check_params(found: Found, sound: Found, change: Change, folder: Path) -> None:
    assert found.keys() == sound.keys(), found.keys() ^ sound.keys()
    for name, array in sound.items():
        np.testing.assert_array_equal(found[name], array, name)


KINDS = [
    *(Kind(f"config-{m}", make(m), change_folder("config.json"), load, run) for m in MODELS),
    *(
        Kind(f"generation-{m}", make(m, GENERATION), change_folder(GENERATION_CONFIG), load, run)
        for m in ("gpt2", "bart")
    ),
    Kind(
        "index",
        make_shards,
        change_folder(INDEX),
        npgpt.from_pretrained,
        lambda model: model.params,
        check_params,
    ),
]
