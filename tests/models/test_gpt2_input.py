"""What GPT-2 accepts as ids and attention_mask, and how it says no."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders.gpt2 import random_gpt2


def test_lists_tuples_and_every_integer_dtype_are_ids(rng) -> None:
    model = random_gpt2(rng)
    want = model(np.array([3, 0, 18]))
    np.testing.assert_array_equal(model([3, 0, 18]), want)
    np.testing.assert_array_equal(model((3, 0, 18), attention_mask=[1, 1, 1]), want)
    np.testing.assert_array_equal(model(np.array([3, 0, 18], np.uint8)), want)
    np.testing.assert_array_equal(model([3, 0, 18], [True, True, True]), want)
    loss, _ = model.loss_and_grads([3, 0, 18], [0, 18, -100])
    assert loss > 0


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([3, -1], r"token id -1 at index \[1\] has no row: the table holds 0\.\.18"),
        ([[3, 4], [19, 0]], r"token id 19 at index \[1, 0\] has no row"),
        ([1.0, 2.0], "token ids must be integers, but have dtype float64"),
        ([True, False], "token ids must be integers, but have dtype bool"),
        ([], r"not empty, but have shape \[0\]"),
        ([[], []], r"not empty, but have shape \[2, 0\]"),
        (3, r"ids must be \[T\] or \[B, T\] and not empty, but have shape \[\]"),
        ([[[3]]], r"ids must be \[T\] or \[B, T\] and not empty, but have shape \[1, 1, 1\]"),
        ([0] * 12, "the text is 12 tokens long, but the model has positions for 11; shorten it"),
    ],
)
def test_ids_that_cannot_be_read(rng, ids, message) -> None:
    model = random_gpt2(rng)
    with pytest.raises(ValueError, match=message):
        model(ids)
    with pytest.raises(ValueError, match=message):
        model.forward(ids)


@pytest.mark.parametrize(
    ("ids", "attention_mask", "message"),
    [
        ([1, 2, 3], [1, 1], r"attention_mask has shape \[2\], but these ids want \[3\]"),
        ([1, 2, 3], [[1, 1, 1]], r"has shape \[1, 3\], but these ids want \[3\]"),
        ([[1, 2], [3, 4]], [1, 1], r"has shape \[2\], but these ids want \[2, 2\]"),
        ([0] * 13, [0] + [1] * 12, "the text is 12 tokens long"),
    ],
)
def test_an_attention_mask_that_does_not_fit(rng, ids, attention_mask, message) -> None:
    with pytest.raises(ValueError, match=message):
        random_gpt2(rng)(ids, attention_mask)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([1, 2], r"targets have shape \[2\], but logits \[3, 19\] want \[3\]"),
        ([1, 2, 19], r"target 19 at index \[2\] is neither in 0\.\.18 nor -100"),
        ([1, 2, -1], r"target -1 at index \[2\] is neither"),
        ([1.0, 2.0, 3.0], "targets must be integers, but have dtype float64"),
    ],
)
def test_targets_that_cannot_be_predicted(rng, targets, message) -> None:
    with pytest.raises(ValueError, match=message):
        random_gpt2(rng).loss_and_grads([1, 2, 3], targets)


def test_the_context_is_as_long_as_the_position_table(rng) -> None:
    model = random_gpt2(rng)
    model.params["wpe.weight"] = model.params["wpe.weight"][:5]  # whatever n_positions says
    assert model([0] * 5).shape == (5, 19)
    with pytest.raises(ValueError, match="6 tokens long, but the model has positions for 5"):
        model([0] * 6)
