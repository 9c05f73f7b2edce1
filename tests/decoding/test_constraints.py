"""Constraints on the next token, each by hand; test_constraints_hf.py has them in real searches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npgpt.decoding.constraints import Step, bad_endings, completions, constrained, pull, scale
from npgpt.models.generation import Generation
from tests.builders.gpt2 import counting_gpt2, random_gpt2
from tests.builders.transformer import random_transformer

NONE = np.array([], int)
WRITTEN = [17, 15, 1, 15, 9, 17, 10, 17]


def allowed(
    text: list[int], *, new: int = 1, last: bool = False, V: int = 6, **rules: Any
) -> list[int]:
    """The tokens that may follow a text; 5 ends it."""
    step = Step(np.array(text), np.array(text[:1]), len(text) - new, new, last)
    scores = constrained(np.zeros(V), step, Generation(**rules), (5,))
    return np.flatnonzero(np.isfinite(scores)).tolist()


def test_without_rules_scores_stay_and_are_not_the_same_array(rng) -> None:
    scores = rng.standard_normal(6).astype(np.float32)
    found = constrained(scores, Step(np.array([1, 2]), NONE, 1, 1, True), Generation(), (5,))
    np.testing.assert_array_equal(found, scores)
    assert found.dtype == np.float32
    assert not np.shares_memory(found, scores)


def test_a_penalty_makes_less_likely_on_either_side_of_zero() -> None:
    scores = np.array([2.0, -2.0, 2.0, -np.inf])
    scale(scores, np.array([0, 1, 1, 3]), 4.0)  # a token that stands twice is penalised once
    assert scores.tolist() == [0.5, -8.0, 2.0, -np.inf]


@pytest.mark.parametrize("n", range(6))
def test_what_would_repeat_an_n_gram_is_found_as_by_brute_force(rng, n) -> None:
    for _ in range(50):
        text, seen = rng.integers(0, 3, rng.integers(1, 9)), rng.integers(0, 3, rng.integers(1, 9))
        grams = {tuple(seen[i : i + n]) for i in range(len(seen) - n + 1)} if n else set()
        want = {t for t in range(3) if (*text[len(text) + 1 - n :], t)[-n:] in grams and n}
        found = {*completions(text, seen, n).tolist()} if len(text) >= n - 1 else set()
        assert found == (want if len(text) >= n - 1 else set())


def test_a_window_larger_than_any_text_forbids_nothing() -> None:
    text = np.array([1, 2, 1, 2])
    assert completions(text, text, 2**31).size == completions(text[:0], text, 3).size == 0


def test_words_are_forbidden_where_they_would_be_completed() -> None:
    words = [[3], [1, 2, 4], [9, 1, 2, 5], [2, 6], [1, 7], [8]]
    assert bad_endings(np.array([1, 2]), words, stops=(8,)) == [3, 4, 6]
    assert bad_endings(np.array([2]), [[2, 8]], stops=(8,)) == [8]  # an end may end a word


def test_the_pull_grows_with_every_token_and_never_overflows() -> None:
    scores = np.array([-1.0, 2.0, -np.inf], np.float32)
    pull(scores, [0, 1, 2], 2, 1.5)
    np.testing.assert_allclose(scores, [-1 + 1.25, 2 + 2.5, -np.inf])
    pull(scores, [0, 1, 2], 2**31, 1000.0)
    assert np.isfinite(scores[:2]).all()
    pull(scores := np.array([1.0]), [0], 0, 3.0)
    assert scores == 1


def test_which_tokens_each_rule_leaves() -> None:
    rest = [0, 1, 2, 3, 4]
    assert allowed([0, 1], min_length=3) == rest
    assert allowed([0, 1], min_length=2) == [*rest, 5]
    assert allowed([0, 1], new=1, min_new_tokens=2) == rest
    assert allowed([0, 1], new=2, min_new_tokens=2) == [*rest, 5]
    assert allowed([0, 1], suppress_tokens=[5, 2, -1, 6]) == [0, 1, 3, 4]
    assert allowed([0, 1], new=0, begin_suppress_tokens=[2]) == [0, 1, 3, 4, 5]
    assert allowed([0, 1], new=1, begin_suppress_tokens=[2]) == [*rest, 5]
    assert allowed([0], new=0, forced_bos_token_id=4, begin_suppress_tokens=[4]) == [4]
    first: dict[str, Any] = {"forced_bos_token_id": 4, "begin_suppress_tokens": [2]}
    assert allowed([0, 4], new=1, **first) == [0, 1, 3, 4, 5]
    assert allowed([0, 1], new=0, forced_bos_token_id=4) == [*rest, 5]  # a prompt of two tokens
    assert allowed([0, 1], last=True, forced_eos_token_id=[5, 3], min_length=9) == [3, 5]
    assert allowed([0, 1], last=False, forced_eos_token_id=5) == [*rest, 5]
    assert allowed([3, 1, 2, 1], no_repeat_ngram_size=2) == [0, 1, 3, 4, 5]
    assert allowed([3, 1, 2, 1], encoder_no_repeat_ngram_size=1) == [0, 1, 2, 4, 5]


@pytest.mark.parametrize(
    "rules",
    [
        {"min_length": 12, "eos_token_id": 6},
        {"forced_bos_token_id": 0},
        {"forced_bos_token_id": 5, "begin_suppress_tokens": [6]},
        {"exponential_decay_length_penalty": [4, 9.0], "eos_token_id": 2, "min_length": 5},
    ],
)
@pytest.mark.parametrize("context", [2, 3, 6])
def test_rules_count_the_tokens_that_a_window_has_forgotten(rules, context) -> None:
    """This model's next token does not depend on the window."""
    texts = []
    for n_positions in (context, 64):
        model = counting_gpt2(n_positions=n_positions)
        model.generation = Generation(**rules)
        texts.append(list(model.generate([3], 20, slide=True)))
    assert texts[0] == texts[1]


def test_a_language_model_follows_them_too() -> None:
    model = counting_gpt2()
    model.generation = replace(model.generation, bad_words_ids=[[5, 6]], suppress_tokens=[0])
    assert list(model.generate([3], 2)) == [4, 5]
    assert list(model.generate([5], 1)) == [1]  # of equals the lowest id that may come
    model.generation = Generation(eos_token_id=[6, 8], min_length=6)
    assert list(model.generate([3], 9)) == [4, 5, 0, 1, 2, 3, 4, 5, 6]
    model.generation = Generation(forced_eos_token_id=1, max_new_tokens=3)
    assert list(model.generate([3])) == [4, 5, 1]


@pytest.mark.parametrize(
    "rules",
    [
        {"repetition_penalty": 2.0, "no_repeat_ngram_size": 2},
        {"encoder_repetition_penalty": 0.4, "encoder_no_repeat_ngram_size": 2},
        {"min_length": 7, "eos_token_id": list(range(12))},
    ],
)
def test_a_padded_row_goes_on_as_it_would_alone(rng, rules) -> None:
    model = random_gpt2(rng, eos_token_id=None)
    model.generation = Generation(**rules)
    ids, mask = rng.integers(0, 19, (3, 5)), np.array([[1] * 5, [0, 0, 0, 1, 1], [0, 1, 1, 1, 1]])
    together = np.transpose(list(model.generate(ids, 6, attention_mask=mask)))
    for row, real, got in zip(ids, mask, together.tolist(), strict=True):
        alone = list(model.generate(row[real == 1], 6))
        assert got[: len(alone)] == alone
    bart = random_transformer(rng, model_type="bart", eos_token_id=None)
    bart.generation = Generation(**{**rules, "num_beams": 2, "decoder_start_token_id": 1})
    mask = mask[:, ::-1]
    rows = [row[real == 1] for row, real in zip(ids, mask, strict=True)]
    alone = [bart.generate(row, max_new_tokens=6) for row in rows]
    assert bart.generate(ids, attention_mask=mask, max_new_tokens=6) == alone


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("use_cache", [True, False])
def test_cache_and_dtype_change_no_token(dtype, use_cache) -> None:
    model = random_gpt2(np.random.default_rng(4), dtype, eos_token_id=None)
    model.generation = Generation(repetition_penalty=1.4, no_repeat_ngram_size=2)
    assert list(model.generate([1, 2], 8, use_cache=use_cache)) == WRITTEN
    model.generation = Generation()
    assert list(model.generate([1, 2], 8, use_cache=use_cache)) != WRITTEN


@pytest.mark.parametrize("rules", [{"forced_bos_token_id": 5}, {"forced_eos_token_id": 5}])
def test_a_forced_token_that_is_not_allowed_is_a_contradiction(rules) -> None:
    model = counting_gpt2()
    model.generation = Generation(**rules)
    assert 5 in list(model.generate([7], 2))
    with pytest.raises(ValueError, match="no token may come next: what is asked for forbids every"):
        list(model.generate([7], 2, allowed=np.arange(9) != 5))


def test_a_row_that_has_ended_breaks_no_rule() -> None:
    """Written on, its 6 and all before it would be forbidden, and with them every token."""
    model = counting_gpt2(n_positions=32)
    model.generation = Generation(no_repeat_ngram_size=1, eos_token_id=6)
    rows, mask = [[7, 8, 0, 1, 2, 3, 4, 5], [8] * 8], [[1] * 8, [0] * 7 + [1]]
    written = np.transpose(list(model.generate(rows, 5, attention_mask=mask)))
    assert written.tolist() == [[6] * 5, [0, 1, 2, 3, 4]]


def test_where_nothing_may_come_there_is_one_sentence() -> None:
    model = counting_gpt2()
    model.generation = Generation(no_repeat_ngram_size=1)
    with pytest.raises(ValueError, match="no token may come next: what is asked for forbids every"):
        list(model.generate([0], 10))
