"""Searches through a model whose every logit is written out, so that the right text is known."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from npgpt.decoding.seq2seq import generate
from npgpt.models.transformer.config import TransformerConfig
from npgpt.ops.softmax import log_softmax
from tests.builders.transformer import SIZES


class Chain:
    """The logits after token v are row v of a table; those of the first token, row source[0]."""

    def __init__(self, table: np.ndarray, **options: Any) -> None:
        self.config = TransformerConfig.from_dict(
            {**SIZES, "vocab_size": len(table), "pad_token_id": None, **options}
        )
        self.table, self.passes = table, 0

    def encode(self, input_ids: Any, attention_mask: Any = None) -> Any:
        return [(input_ids, input_ids)]

    def decode(self, ids: Any, cross_kv: Any, attention_mask: Any = None, kv: Any = None) -> Any:
        self.passes += 1
        source, _ = cross_kv[0]
        last = (
            ids[..., -1] if ids.shape[-1] > 1 else np.broadcast_to(source[..., 0], ids.shape[:-1])
        )
        logits = self.table[last]
        logits.flags.writeable = False  # they are the model's
        return logits

    def new_kv_cache(self, batch: Any, capacity: int) -> Any:
        raise NotImplementedError

    def written(self, source: Any, **settings: Any) -> Any:
        return generate(self, source, use_cache=False, **settings)


def counting(**options: Any) -> Chain:
    """Each of 8 tokens is followed by the next one, nearly for certain."""
    return Chain(np.roll(30 * np.eye(8), 1, axis=1), **options)


@pytest.mark.parametrize("num_beams", [1, 2, 5])
@pytest.mark.parametrize(
    ("eos", "texts"),
    [
        (6, [[4, 5, 6], [1, 2, 3, 4, 5, 6], [7, 0, 1, 2, 3, 4, 5, 6]]),
        ([6, 2], [[4, 5, 6], [1, 2], [7, 0, 1, 2]]),
        ([2, 6], [[4, 5, 6], [1, 2], [7, 0, 1, 2]]),
        ([2, 0, 5], [[4, 5], [1, 2], [7, 0]]),
        (0, [[4, 5, 6, 7, 0], [1, 2, 3, 4, 5, 6, 7, 0], [7, 0]]),
    ],
)
def test_whichever_end_of_text_comes_first_ends(eos, texts, num_beams) -> None:
    """It may stand anywhere in the list, and be token 0; each row of a batch ends by itself."""
    model, sources = counting(eos_token_id=eos), [[3], [0], [6]]
    settings = {"max_new_tokens": 9, "num_beams": num_beams}
    for source, text in zip(sources, texts, strict=True):
        model.passes = 0
        assert model.written(source, **settings) == text
        assert num_beams > 1 or model.passes == len(text)
    assert model.written(sources, **settings) == texts


def test_beams_go_on_where_two_ends_of_text_are_likelier_than_all_else() -> None:
    """Of 2 · K candidates each would end: there must be K more."""
    model = Chain(np.log([[0.4, 0.35, 0.15, 0.07, 0.03]] * 5), eos_token_id=[1, 0])
    settings = {"max_new_tokens": 4, "early_stopping": "never", "length_penalty": 5.0}
    for num_beams in (2, 3):
        assert model.written([4], num_beams=num_beams, **settings) == [2, 2, 2, 0]


def test_never_with_a_penalty_below_0_measures_at_the_present_length() -> None:
    """Such scores only get worse with length, so that at the longest no open target could win: the
    search would end with [0], at ln 0.025, before [1, 2, 0] is written, at 3 ln(0.97 · 0.6 · 0.9).
    """
    rows = [
        [0.25] * 4,
        [0.15, 0.125, 0.6, 0.125],
        [0.9, 0.04, 0.03, 0.03],
        [0.025, 0.97, 4e-3, 1e-3],
    ]
    model = Chain(np.log(rows), eos_token_id=0)
    settings = {"num_beams": 2, "max_new_tokens": 12, "early_stopping": "never"}
    assert model.written([3], length_penalty=-1.0, **settings) == [1, 2, 0]
    assert model.written([3], length_penalty=0.0, **settings) == [1, 2, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_of_thousands(dtype, rng) -> None:
    """Against all 4³ targets, of which 16 beams miss none.

    Token 0 never comes, but has all the probability: that of the others, e^-20000, is 0.
    """
    table = (5e3 * rng.standard_normal((5, 5))).astype(dtype)
    table[:, 0] = 2e4
    model = Chain(table, eos_token_id=None, bad_words_ids=[[0]])
    exact = table.astype(float)
    for source, num_beams in itertools.product(range(5), (16, 64)):
        best = max(
            itertools.product(range(1, 5), repeat=3),
            key=lambda t: sum(exact[pair] for pair in itertools.pairwise((source, *t))),
        )
        assert model.written([source], num_beams=num_beams, max_new_tokens=3) == [*best]


@pytest.mark.parametrize("better", [2, 3])
def test_log_probabilities_are_float64_whatever_the_model_is(better) -> None:
    """Two logits that float32 tells apart, but not their log-probabilities."""
    row = np.array([0, math.log(0.5), -511.8, -511.8, -1e4], np.float32)
    row[better] = -511.79996
    rounded = log_softmax(row)
    assert row[2] != row[3]
    assert rounded[2] == rounded[3]
    model = Chain(np.tile(row, (5, 1)), eos_token_id=None, bad_words_ids=[[0], [1]])
    assert model.written([4], num_beams=2, max_new_tokens=1) == [better]
