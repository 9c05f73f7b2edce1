"""Where decoding ends, which ids never come, and what is an error."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.decoding.causal import end_of_text_ids
from npgpt.models.gpt2.model import GPT2
from tests.builders.gpt2 import counting_gpt2, random_gpt2


def test_a_row_ends_after_a_stop_token() -> None:
    model = counting_gpt2()
    assert list(model.generate([3], 8, stop_ids=[6])) == [4, 5, 6]
    assert list(model.generate([3], 8, stop_ids={5, 6})) == [4, 5]
    assert list(model.generate([3], 3, stop_ids=(7,))) == [4, 5, 6]
    assert list(model.generate([6], 3, stop_ids=(6,))) == [7, 8, 0]  # the prompt does not stop it


def test_rows_that_end_at_different_steps_repeat_their_last_token() -> None:
    batch = list(counting_gpt2().generate([[3], [5], [0]], 9, stop_ids=[6]))
    assert np.transpose(batch).tolist() == [
        [4, 5, 6, 6, 6, 6],
        [6, 6, 6, 6, 6, 6],
        [1, 2, 3, 4, 5, 6],
    ]


@pytest.mark.parametrize(
    ("eos", "ids", "tokens"),
    [
        (6, (6,), [4, 5, 6]),
        ([5, 99, 6], (5, 6), [4, 5]),
        (50256, (), [4, 5, 6, 7, 8]),  # GPT-2's, where the vocabulary is smaller
        (-1, (), [4, 5, 6, 7, 8]),
        (None, (), [4, 5, 6, 7, 8]),
        ([], (), [4, 5, 6, 7, 8]),
    ],
)
def test_end_of_text_is_what_the_configuration_says(eos, ids, tokens) -> None:
    model = counting_gpt2(eos_token_id=eos)
    assert end_of_text_ids(model) == ids
    assert list(model.generate([3], 5)) == tokens
    assert list(model.generate([3], 5, stop_ids=())) == [4, 5, 6, 7, 8]


def test_padded_ids_never_come() -> None:
    """Rows of wte beyond vocab_size are padding, however likely the model finds them."""
    model = counting_gpt2(vocab_size=6, rows=8)
    assert model([5])[-1].argmax() == 6
    assert list(model.generate([4], 2)) == [5, 0]
    sampled = list(model.generate([5], 10, temperature=1e3, seed=0))
    assert max(sampled) < 6


def test_only_allowed_ids_come() -> None:
    model, allowed = counting_gpt2(vocab_size=6, rows=8), np.ones(8, bool)
    allowed[[0, 3]] = False
    assert list(model.generate([2], 1, allowed=allowed)) == [1]  # of equals the lowest id
    sampled = list(model.generate([5], 11, temperature=1e3, seed=0, allowed=allowed))
    assert set(sampled) == {1, 2, 4, 5}


@pytest.mark.parametrize("use_cache", [True, False])
def test_text_may_fill_the_context_to_its_border(rng, use_cache) -> None:
    """The last new token is chosen but not read: T + N - 1 positions."""
    model = random_gpt2(rng)
    assert len(list(model.generate([1] * 4, 8, use_cache=use_cache))) == 8
    assert len(list(model.generate([1] * 10, 2, use_cache=use_cache))) == 2
    assert list(model.generate([1] * 11, 1, use_cache=use_cache)) == [model([1] * 11)[-1].argmax()]
    assert list(model.generate([1] * 4, 0, use_cache=use_cache)) == []


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        ([1] * 11, {"max_new_tokens": 2}, "11 prompt tokens and 2 new ones do not fit"),
        ([1] * 12, {"max_new_tokens": 0}, "12 prompt tokens and 0 new ones do not fit"),
        ([1] * 4, {"max_new_tokens": 9}, "4 prompt tokens and 9 new ones do not fit"),
        (
            [1],
            {"max_new_tokens": -1},
            "max_new_tokens must be a whole number of at least 0, but is -1",
        ),
        ([1], {"temperature": -1.0}, "temperature"),
        ([1], {"top_k": -1}, "top_k"),
        ([1], {"top_p": float("nan")}, "top_p"),
        ([], {}, r"ids must be \[T\] or \[B, T\] and not empty, but have shape \[0\]"),
        ([[[1]]], {}, r"have shape \[1, 1, 1\]"),
        (
            [1, 2],
            {"attention_mask": [1]},
            r"attention_mask has shape \[1\], but these ids want \[2\]",
        ),
        ([1, 2], {"attention_mask": [1, 0]}, "a prompt ends in padding; pad on the left"),
        (
            [1],
            {"allowed": np.ones(5, bool)},
            r"allowed has shape \[5\] and dtype bool, but must be a bool for each of .* 19 ids",
        ),
        ([1], {"allowed": np.zeros(19, bool)}, "every id is forbidden"),
    ],
)
def test_errors_come_with_the_call_not_with_the_first_token(rng, ids, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        random_gpt2(rng).generate(ids, **{"max_new_tokens": 1, **options})


def test_a_context_of_one_token_cannot_slide(rng) -> None:
    with pytest.raises(ValueError, match="a context of one token cannot slide"):
        random_gpt2(rng, n_positions=1).generate([1], 5, slide=True)


@pytest.mark.parametrize("ids", [[-1], [19], [1.0]])
def test_ids_without_a_row_are_an_error(rng, ids) -> None:
    with pytest.raises(ValueError, match="token id"):
        list(random_gpt2(rng).generate(ids, 1))


def test_broken_weights_are_an_error(rng) -> None:
    model = random_gpt2(rng)
    model.params["ln_f.bias"][3] = np.nan
    with pytest.raises(ValueError, match="the logits are not finite"):
        list(model.generate([1], 1))


@pytest.mark.parametrize(
    ("eos", "rows"),
    [
        ([6, 2], [[4, 5, 6], [1, 2, 2], [7, 8, 0]]),
        ([2, 6], [[4, 5, 6], [1, 2, 2], [7, 8, 0]]),
        ([5, 0, 1], [[4, 5, 5], [1, 1, 1], [7, 8, 0]]),
        (0, [[4, 5, 6], [1, 2, 3], [7, 8, 0]]),
        (4, [[4, 4, 4], [1, 2, 3], [7, 8, 0]]),
    ],
)
def test_whichever_end_of_text_comes_first_ends_its_row(eos, rows) -> None:
    """It may stand anywhere in the list, and be token 0; each row of a batch ends by itself."""
    model, prompts = counting_gpt2(eos_token_id=eos), [[3], [0], [6]]
    ends = {eos} if isinstance(eos, int) else {*eos}
    assert np.transpose(list(model.generate(prompts, 3))).tolist() == rows
    for prompt, row in zip(prompts, rows, strict=True):
        end = next((n for n, token in enumerate(row) if token in ends), 2)
        assert list(model.generate(prompt, 3)) == row[: end + 1]


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "top_k": 5, "top_p": 0.9}], ids=str)
def test_the_models_logits_are_not_changed(rng, monkeypatch, settings) -> None:
    """Neither by what is forbidden nor by what is drawn."""
    call = GPT2.__call__

    def read_only(*args, **options):
        logits = call(*args, **options)
        logits.flags.writeable = False
        return logits

    monkeypatch.setattr(GPT2, "__call__", read_only)
    model, allowed = random_gpt2(rng), np.arange(19) != 4
    for prompt in ([1, 2], [[1, 2], [3, 4]]):
        assert len([*model.generate(prompt, 3, allowed=allowed, seed=0, **settings)]) == 3
