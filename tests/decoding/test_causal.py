"""Decoding: the same text with and without cache, alone and in a batch, in a window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npgpt.decoding.sampling import sample
from npgpt.models.generation import Generation
from npgpt.models.gpt2.model import GPT2
from tests.builders.gpt2 import counting_gpt2, random_gpt2
from tests.builders.llama import random_llama

V, CONTEXT = 19, 11
SAMPLING: dict[str, Any] = {"temperature": 1.5, "top_k": 9, "top_p": 0.95}


def text(model, ids, n, **options):
    """The new tokens of one row."""
    return list(model.generate(ids, n, stop_ids=(), **options))


def left_padded(rows):
    """ids [B, T] and their attention mask, each row at the right."""
    width = max(map(len, rows))
    ids = np.array([[7] * (width - len(row)) + row for row in rows])
    return ids, np.array([[0] * (width - len(row)) + [1] * len(row) for row in rows])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("settings", [{}, SAMPLING])
def test_equals_a_plain_loop_over_full_forward_passes(rng, settings, dtype) -> None:
    model, ids = random_gpt2(rng, dtype), [3, 1, 4]
    draws = np.random.default_rng(7)
    want: list[int] = []
    for _ in range(8):
        want.append(sample(model([*ids, *want])[-1], draws, **settings))
    for use_cache in (True, False):
        assert text(model, ids, 8, seed=7, use_cache=use_cache, **settings) == want
    assert len(set(want)) > 2


def test_the_seed_is_all_the_chance_there_is(rng) -> None:
    model = random_gpt2(rng)
    first, again, other = (text(model, [3], 10, seed=n, temperature=2.0) for n in (1, 1, 2))
    assert first == again != other
    assert text(model, [3], 10) == text(model, [3], 10, seed=5)  # greedy draws nothing
    without = {tuple(text(model, [3], 10, temperature=2.0)) for _ in range(3)}
    assert len(without) == 3


def test_the_callers_prompt_is_not_changed(rng) -> None:
    model, prompt, array = random_gpt2(rng), [3, 1, 4], np.array([[3, 1, 4], [1, 5, 9]])
    text(model, prompt, 5)
    text(model, array, 5)
    assert prompt == [3, 1, 4]
    assert array.tolist() == [[3, 1, 4], [1, 5, 9]]


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_left_padded_batch_equals_its_rows(rng, use_cache) -> None:
    model = random_gpt2(rng)
    rows = [[3, 1, 4, 1, 5, 9, 2], [6, 5], [3, 5, 8]]
    width = 15  # wider than the context, which counts the real tokens only
    ids = np.array([[7] * (width - len(row)) + row for row in rows])
    attention_mask = np.array([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    batch = text(model, ids, 5, attention_mask=attention_mask, use_cache=use_cache)
    assert np.transpose(batch).tolist() == [text(model, row, 5) for row in rows]
    unmasked = text(model, ids[:, -7:], 5, use_cache=use_cache)
    assert np.transpose(unmasked).tolist() != np.transpose(batch).tolist()


def test_tokens_are_ints_or_one_int_array_a_step(rng) -> None:
    model = random_gpt2(rng)
    assert all(type(token) is int for token in text(model, [3], 4))
    steps = text(model, [[3], [4]], 4)
    assert [step.shape for step in steps] == [(2,)] * 4
    assert all(np.issubdtype(step.dtype, np.integer) for step in steps)


@pytest.mark.parametrize("use_cache", [True, False])
def test_tokens_come_as_soon_as_they_are_chosen(use_cache) -> None:
    tokens = counting_gpt2().generate([0], 10, use_cache=use_cache)
    assert [next(tokens), next(tokens)] == [1, 2]


def test_with_a_cache_only_the_prompt_is_read_whole(rng, monkeypatch) -> None:
    model, lengths = random_gpt2(rng), []
    call = GPT2.__call__

    def counted(self, ids, *rest, **options):
        lengths.append(len(ids))
        return call(self, ids, *rest, **options)

    monkeypatch.setattr(GPT2, "__call__", counted)
    text(model, [1, 2, 3], 4)
    text(model, [1, 2, 3], 4, use_cache=False)
    assert lengths == [3, 1, 1, 1, 3, 4, 5, 6]


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("settings", [{}, SAMPLING])
@pytest.mark.parametrize("length", [4, 11, 30])
def test_a_sliding_window_equals_a_plain_loop(rng, length, settings, use_cache) -> None:
    model, ids = random_gpt2(rng, eos_token_id=None), rng.integers(0, V, length).tolist()
    window, draws, want = list(ids), np.random.default_rng(3), []
    for _ in range(25):
        if len(window) > CONTEXT:
            window = window[-(CONTEXT // 2) :]
        want.append(sample(model(window)[-1], draws, **settings))
        window.append(want[-1])
    assert text(model, ids, 25, slide=True, seed=3, use_cache=use_cache, **settings) == want


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("make", [random_gpt2, random_llama])
@pytest.mark.parametrize("lengths", [(6, 6), (8, 3, 1), (1, 30)])
def test_a_batch_slides_as_its_rows_do(rng, lengths, make, use_cache) -> None:
    """A row that is full moves its own window; the others keep theirs."""
    model, rows = make(rng), [rng.integers(0, V, length).tolist() for length in lengths]
    ids, mask = left_padded(rows)
    batch = text(model, ids, 30, attention_mask=mask, slide=True, use_cache=use_cache)
    assert np.transpose(batch).tolist() == [text(model, row, 30, slide=True) for row in rows]


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_batch_that_is_sampled_slides_as_its_rows_do(rng, use_cache) -> None:
    """All rows share one generator, so the oracle is a plain loop that draws in the same order."""
    model, rows = random_gpt2(rng), [rng.integers(0, V, length).tolist() for length in (8, 3, 1)]
    windows, draws, want = [list(row) for row in rows], np.random.default_rng(3), []
    for _ in range(30):
        windows = [w[-(CONTEXT // 2) :] if len(w) > CONTEXT else w for w in windows]
        want.append([sample(model(window)[-1], draws, **SAMPLING) for window in windows])
        for window, token in zip(windows, want[-1], strict=True):
            window.append(token)
    ids, mask = left_padded(rows)
    options = {"attention_mask": mask, "slide": True, "seed": 3, "use_cache": use_cache}
    batch = text(model, ids, 30, **options, **SAMPLING)
    assert np.array(batch).tolist() == want


@pytest.mark.parametrize(("rules", "new"), [({"max_new_tokens": 30}, 30), ({"max_length": 40}, 35)])
def test_a_sliding_window_holds_as_many_tokens_as_the_models_files_say(rules, new) -> None:
    model = counting_gpt2(n_positions=CONTEXT)
    model.generation = Generation(**rules)
    assert list(model.generate([5] * 5, slide=True)) == [(6 + n) % 9 for n in range(new)]
    assert len(list(model.generate([5] * 5))) == CONTEXT + 1 - 5


def test_seed_0_is_a_seed(rng) -> None:
    model = random_gpt2(rng)
    first, again = (text(model, [3], 10, seed=0, temperature=2.0) for _ in range(2))
    assert first == again
