"""A model for the examples that look inside one: `--model`, or what there is.

The default is weights/tales if that folder exists, else `random`: GPT-2 small in miniature, freshly
drawn, which reads bytes. It has learned nothing, but all its shapes and equations are GPT-2's.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np
from show import new_parser, say

import npgpt
from npgpt import cli
from npgpt.files.hub import find_model
from npgpt.models.auto import model_type
from npgpt.models.gpt2.config import GPT2Config, init_params
from npgpt.models.gpt2.model import GPT2
from npgpt.text.labels import visible

SENTENCE = "The cat sat on the mat because it was tired"  # article 7.1


class Tokenizer(Protocol):
    """What the examples need of a tokenizer."""

    def encode(self, text: str) -> list[int]: ...

    def decode_single_token_bytes(self, token: int) -> bytes: ...


class Bytes:
    """The tokenizer of the random model: a token is a byte."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8"))

    def decode_single_token_bytes(self, token: int) -> bytes:
        return bytes([token])


class Opened(NamedTuple):
    """A model, its tokenizer, what it is called, and whether it has been trained."""

    model: GPT2
    tokenizer: Tokenizer
    name: str
    trained: bool


def options(doc: str | None, text: str = SENTENCE) -> argparse.ArgumentParser:
    """A parser that knows --model and --text."""
    parser = new_parser(doc)
    parser.add_argument("--model", help="folder, weights/NAME, hub id such as gpt2, or `random`")
    what = f"what the model reads; default: {text!r}"
    parser.add_argument("--text", type=cli.text, default=text, help=what)
    return parser


def open_model(name: str | None) -> Opened:
    """The model of that name; None: weights/tales, or else a random one, with a remark."""
    if name is None:
        try:
            find_model("weights/tales")
            name = "weights/tales"
        except FileNotFoundError:
            remark = say(
                "no weights/tales here: a random model, which knows nothing, takes its place",
                "这里没有 weights/tales：用一个什么都不知道的随机模型代替",
            )
            print(remark, file=sys.stderr)
            name = "random"
    if name == "random":
        return Opened(random_model(), Bytes(), say("a random model", "随机模型"), trained=False)
    if (kind := model_type(find_model(name, files=("config",)))) != "gpt2":
        raise ValueError(f"{name!r} is a {kind}, but this example looks inside a GPT-2.")
    return Opened(npgpt.from_pretrained(name), npgpt.load_tokenizer(name), name, trained=True)


def random_model() -> GPT2:
    """12 blocks of 12 heads, as GPT-2 small has, but d 48 and V 256.

    The weights are drawn wider by √(768/48), so that scores and norms are those of a fresh GPT-2.
    """
    config = GPT2Config(
        vocab_size=256, n_embd=48, initializer_range=0.08, bos_token_id=None, eos_token_id=None
    )
    return GPT2(config, init_params(config, np.random.default_rng(1), np.float64))


def labels(tokenizer: Tokenizer, ids: Iterable[int]) -> list[str]:
    """Each token as text: a space as ␣, half a character as its bytes."""
    return [visible(tokenizer.decode_single_token_bytes(token)) for token in ids]


def word_position(tokenizer: Tokenizer, ids: list[int], word: str) -> int | None:
    """Position of the token that ends the first occurrence of a word in the text, or None."""
    pieces = [tokenizer.decode_single_token_bytes(token) for token in ids]
    text = b"".join(pieces).decode("utf-8", "replace")
    edge = r"\b" if word.isascii() else ""  # between Chinese characters there is none
    found = re.search(f"{edge}{re.escape(word)}{edge}", text)
    if found is None:
        return None
    end = len(text[: found.end()].encode("utf-8"))
    return int(np.searchsorted(np.cumsum([len(piece) for piece in pieces]), end))
