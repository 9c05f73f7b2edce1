"""What BERT accepts as input and configuration, and how it says no."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.models.bert.config import BERTConfig
from tests.builders.bert import SIZES, random_bert, tiny_bert_config


def test_lists_tuples_and_every_integer_dtype_are_ids(rng) -> None:
    model = random_bert(rng)
    want = model(np.array([3, 0, 18]))
    np.testing.assert_array_equal(model([3, 0, 18]), want)
    np.testing.assert_array_equal(model((3, 0, 18), [1, 1, 1], [0, 0, 0]), want)
    np.testing.assert_array_equal(model(np.array([3, 0, 18], np.uint8)), want)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([3, -1], r"token id -1 at index \[1\] has no row: the table holds 0\.\.18"),
        ([[3, 4], [19, 0]], r"token id 19 at index \[1, 0\] has no row"),
        ([1.0, 2.0], "token ids must be integers, but have dtype float64"),
        ([], r"not empty, but have shape \[0\]"),
        (3, r"ids must be \[T\] or \[B, T\] and not empty, but have shape \[\]"),
        ([0] * 12, "the text is 12 tokens long, but the model has positions for 11; shorten it"),
    ],
)
def test_ids_that_cannot_be_read(rng, ids, message) -> None:
    with pytest.raises(ValueError, match=message):
        random_bert(rng).forward(ids)


@pytest.mark.parametrize(
    ("attention_mask", "types", "message"),
    [
        ([1, 1], None, r"attention_mask has shape \[2\], but these ids want \[3\]"),
        (None, [0, 0], r"token_type_ids has shape \[2\], but these ids want \[3\]"),
        (None, [0, 0, 2], r"token type 2 at index \[2\] has no row: the table holds 0\.\.1"),
        (None, [0.0, 0, 1], "token_type_ids must be integers, but have dtype float64"),
    ],
)
def test_masks_and_types_that_do_not_fit(rng, attention_mask, types, message) -> None:
    with pytest.raises(ValueError, match=message):
        random_bert(rng).encode([1, 2, 3], attention_mask, types)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([1, 2], r"targets have shape \[2\], but logits \[3, 19\] want \[3\]"),
        ([-100, 2, 19], r"target 19 at index \[2\] is neither in 0\.\.18 nor -100"),
        ([1.0, 2.0, 3.0], "targets must be integers, but have dtype float64"),
    ],
)
def test_targets_that_cannot_be_asked_for(rng, targets, message) -> None:
    with pytest.raises(ValueError, match=message):
        random_bert(rng).loss_and_grads([1, 2, 3], targets)


def test_relative_positions_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^x/config\.json: .*'relative_key', but npgpt's BERT has"
    ):
        BERTConfig.from_dict({**SIZES, "position_embedding_type": "relative_key"}, "x/config.json")
    config = tiny_bert_config(position_embedding_type="absolute")
    assert config.to_dict()["position_embedding_type"] == "absolute"
    assert BERTConfig().to_dict()["architectures"] == ["BertForMaskedLM"]
