"""GGUF files of each architecture, with a vocabulary.

Right is: parameters of the sound file's shapes; the same numbers (a Llama's: in any order, which
the number of heads decides) where only a setting was changed; ids of byte pairs spell the text
again.
"""

from __future__ import annotations

import copy
import random
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import npgpt
from npgpt.text.byte_pairs import byte_alphabet
from npgpt.text.foreign import ForeignTokenizer
from tests.builders.gguf import gpt2_file, llama_file, setting, write_gguf
from tests.builders.gpt2 import random_gpt2
from tests.builders.llama import random_llama
from tests.builders.vocabularies import gguf_vocabulary, qwen2, scored_pieces
from tests.fuzz.changes import RAW, change_bytes, change_value
from tests.fuzz.harness import Change, Found, Kind
from tests.fuzz.vocabularies import TEXT

V = 257
VOCABULARY: dict[str, Any] = {
    "general.alignment": 32,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": [*byte_alphabet(), "th"],
    "tokenizer.ggml.merges": ["t h"],
    "tokenizer.ggml.token_type": [1] * V,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}
FILE = "x.gguf"
LLAMAS: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True},
    "mixtral": {"num_local_experts": 3},
    "qwen2": {},
    "qwen3": {},
    "qwen3_moe": {"num_local_experts": 3, "num_experts_per_tok": 2, "norm_topk_prob": True},
}


class Pairs(list[tuple[str, Any]]):
    """What `write_gguf` takes for a table, in which a name may stand twice."""

    def items(self) -> Pairs:
        return self


@cache
def content(file: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Settings and tensors of the sound file."""
    rng = np.random.default_rng(0)
    if file == "gpt2":
        settings, tensors = gpt2_file(random_gpt2(rng, np.float32, vocab_size=V))
        return {**settings, **VOCABULARY}, tensors
    pieces = {f"tokenizer.ggml.{name}": value for name, value in scored_pieces().items()}
    vocabulary = (
        pieces if file in ("llama", "mixtral") else gguf_vocabulary(qwen2(), "qwen2", ["[PAD]"])
    )
    size = len(vocabulary["tokenizer.ggml.tokens"])
    model = random_llama(rng, np.float32, vocab_size=size, model_type=file, **LLAMAS[file])
    settings, tensors = llama_file(model)
    return {**settings, **vocabulary}, tensors


def encoded(value: Any) -> tuple[int, bytes]:
    """Kind and bytes of any JSON value, as near as the format comes."""
    if isinstance(value, str) and not value.isascii():
        return 8, struct.pack("<Q", len(data := value.encode("utf-8", "replace"))) + data
    if value is None or isinstance(value, dict):
        return 9, struct.pack("<IQ", 9, 1) * 2000 + struct.pack("<IQ", 4, 0)
    if type(value) is int and not 0 <= value < 2**32:
        return 10, struct.pack("<Q", value % 2**64)
    if type(value) is float:
        return 12, struct.pack("<d", value)
    if isinstance(value, list) and value:
        items = [encoded(item) for item in value]
        body = b"".join(data for kind, data in items)
        return 9, struct.pack("<IQ", items[0][0], len(items)) + body
    return setting(value)


def change(file: str) -> Callable[[random.Random, Path], Change]:
    def change(rng: random.Random, folder: Path) -> Change:
        path, (settings, tensors) = folder / FILE, content(file)
        settings = copy.deepcopy(settings)
        if rng.random() < 0.25:
            header = path.stat().st_size - sum(array.nbytes for array in tensors.values())
            return change_bytes(rng, path, rng.choice([24, header, header, header, None]))
        done = Change("", part="settings")
        if rng.random() < 0.5:
            done = done._replace(what=change_value(rng, settings))
        pairs, entries = Pairs(settings.items()), Pairs(tensors.items())
        if not done.what:
            which = rng.choice([pairs, entries])
            n, m = rng.randrange(len(which)), rng.randrange(len(which))
            (name, value), (other, _) = which[n], which[m]
            what = rng.choice(["twice", "twice", "remove", "rename", "exchange", "turn"])
            match what:
                case "twice":
                    which.append((name, rng.choice([value, which[m][1]])))
                case "remove":
                    del which[n]
                case "rename":
                    which[n] = name + rng.choice("0_. "), value
                case "exchange":
                    which[n], which[m] = (other, value), (name, which[m][1])
                case "turn" if isinstance(value, np.ndarray):
                    which[n] = name, rng.choice([value.T, value[..., :-1], value.astype("<f2")])
            part = "settings" if which is pairs else "tensors"
            done = Change(f"{name}, {other}: {what}", refused=what == "twice", part=part)
        plain = Pairs(
            (name, encoded(RAW.get(v, v) if isinstance(v, str) else v)) for name, v in pairs
        )
        alignment = rng.choice([32] * 9 + [8])
        write_gguf(path, plain, entries, rng.choice([3, 3, 3, 2]), alignment)  # type: ignore[arg-type]
        return done

    return change


def load(folder: Path) -> tuple[Any, Any]:
    return npgpt.from_pretrained(folder / FILE), npgpt.load_tokenizer(folder / FILE)


def run(loaded: tuple[Any, Any]) -> Found:
    model, tokenizer = loaded
    ids = tokenizer.encode(TEXT)
    text = tokenizer.decode(ids)
    assert text == TEXT or isinstance(tokenizer, ForeignTokenizer)  # which may lack a character
    logits = model(ids[:4])
    if max(np.abs(array).max() for array in model.params.values()) > 1e9:
        logits = np.zeros_like(logits)  # turned bytes may make weights that no float32 multiplies
    return {**model.params, "logits": logits}


def check(found: Found, sound: Found, change: Change, folder: Path) -> None:
    assert found["logits"].shape == sound["logits"].shape
    if change.part == "settings":
        for name in sound.keys() - {"logits"}:
            numbers, wanted = (np.sort(each[name], axis=None) for each in (found, sound))
            np.testing.assert_array_equal(numbers, wanted, name)


def make(file: str) -> Callable[[Path], Path]:
    return lambda folder: write_gguf(folder / FILE, *content(file))


KINDS = [Kind(f"gguf-{f}", make(f), change(f), load, run, check) for f in ("gpt2", *LLAMAS)]
