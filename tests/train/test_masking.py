"""The 80/10/10 rule: how many, what becomes of them, and what is never touched."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.train.masking import mask_tokens

V, MASK, SPECIAL = 50, 4, (0, 2, 3)


def test_the_shares_are_80_10_and_10_percent(rng) -> None:
    ids = rng.integers(5, V, (400, 500))
    read, targets = mask_tokens(ids, rng, mask_id=MASK, vocab_size=V, special_ids=SPECIAL)
    chosen = targets != -100
    np.testing.assert_array_equal(targets[chosen], ids[chosen])
    np.testing.assert_array_equal(read[~chosen], ids[~chosen])
    assert chosen.mean() == pytest.approx(0.15, abs=0.005)
    hidden, same = read[chosen] == MASK, read[chosen] == ids[chosen]
    assert hidden.mean() == pytest.approx(0.8, abs=0.01)
    luck = 0.1 / (V - 4)  # a random token may be the old one
    assert same.mean() == pytest.approx(0.1 + luck, abs=0.01)
    others = read[chosen][~hidden & ~same]
    assert set(others) == set(range(1, V)) - {*SPECIAL, MASK}
    counts = np.bincount(others, minlength=V)[5:]
    assert counts.max() < 2 * counts.min()


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64])
def test_unsigned_ids_become_signed(rng, dtype) -> None:
    ids = rng.integers(5, V, (20, 30))
    signed, unsigned = (
        mask_tokens(each, np.random.default_rng(1), mask_id=MASK, vocab_size=V, special_ids=SPECIAL)
        for each in (ids, ids.astype(dtype))
    )
    np.testing.assert_array_equal(unsigned, signed)
    assert {array.dtype for array in unsigned} == {np.dtype(np.int64)}


def test_special_tokens_are_never_chosen(rng) -> None:
    ids = rng.choice([*SPECIAL, MASK, 7], (100, 20))
    read, targets = mask_tokens(
        ids, rng, mask_id=MASK, vocab_size=V, special_ids=SPECIAL, fraction=1.0
    )
    np.testing.assert_array_equal(targets != -100, ids == 7)
    np.testing.assert_array_equal(read[ids != 7], ids[ids != 7])


def test_same_generator_same_masks_and_the_ids_stay(rng) -> None:
    ids = rng.integers(5, V, 30).astype(np.int32)
    before = ids.copy()
    first, again, other = (
        mask_tokens(ids, np.random.default_rng(n), mask_id=MASK, vocab_size=V, fraction=0.5)
        for n in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first[1] != other[1]).any()
    np.testing.assert_array_equal(ids, before)
    assert {array.dtype for array in first} == {np.dtype(np.int32)}


def test_nothing_is_chosen(rng) -> None:
    read, targets = mask_tokens(np.arange(5, 9), rng, mask_id=MASK, vocab_size=V, fraction=0)
    assert read.tolist() == [5, 6, 7, 8]
    assert (targets == -100).all()


def test_what_is_refused(rng) -> None:
    with pytest.raises(
        ValueError, match=r"fraction must be a finite number from 0 to 1, but is 1\.5"
    ):
        mask_tokens(np.arange(5), rng, mask_id=MASK, vocab_size=V, fraction=1.5)
    with pytest.raises(ValueError, match="all 3 tokens of the vocabulary are special"):
        mask_tokens(np.arange(3), rng, mask_id=0, vocab_size=3, special_ids=[1, 2])
