"""What training reads, window by window, and what evaluation does."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.train.windows import held_out_batches, split_tail, training_batch, windows_per_epoch

N, CONTEXT = 107, 10
POSITIONS = np.arange(N)  # as ids, they say where a window was cut


def epoch(number, seed=3):
    per_epoch = windows_per_epoch(N, CONTEXT)
    return training_batch(POSITIONS, number * per_epoch, per_epoch, context=CONTEXT, seed=seed)


def test_targets_are_the_following_tokens():
    ids, targets = epoch(0)
    assert ids.shape == targets.shape == (9, CONTEXT)
    assert ids.dtype == targets.dtype == np.int64
    np.testing.assert_array_equal(targets, ids + 1)
    np.testing.assert_array_equal(np.diff(ids, axis=1), 1)


def test_an_epoch_has_each_token_as_a_target_once_and_leaves_out_others_each_time():
    starts = set()
    for number in range(200):
        _, targets = epoch(number)
        flat = np.sort(targets.ravel())
        np.testing.assert_array_equal(flat, np.arange(flat[0], flat[0] + 90))
        starts.add(int(flat[0]))
    assert starts == set(range(1, 18))  # so that the first and the last token come up too


def test_epochs_and_seeds_shuffle_differently():
    orders = {
        tuple(epoch(number, seed)[0][:, 0] // CONTEXT) for number in (0, 1) for seed in (3, 4)
    }
    assert len(orders) == 4
    assert all(list(order) != sorted(order) for order in orders)


def test_the_number_of_a_window_says_what_is_in_it():
    def batch(first, count):
        return training_batch(POSITIONS, first, count, context=CONTEXT, seed=3)[0]

    whole = batch(5, 12)  # into the second epoch
    parts = [batch(first, 4) for first in (13, 5, 9)]
    np.testing.assert_array_equal(whole, np.concatenate([parts[1], parts[2], parts[0]]))


def test_the_shortest_text_is_a_window_and_its_last_target():
    ids, targets = training_batch(POSITIONS[:11], 0, 2, context=CONTEXT, seed=3)
    np.testing.assert_array_equal(ids, [np.arange(10)] * 2)
    np.testing.assert_array_equal(targets, [np.arange(1, 11)] * 2)
    with pytest.raises(ValueError, match=r"has 10 tokens, fewer than one block of 10 .* --context"):
        training_batch(POSITIONS[:10], 0, 1, context=CONTEXT, seed=3)


@pytest.mark.parametrize(
    ("batches", "starts"), [(9, range(0, 100, 10)), (2, (0, 10, 30, 50, 60, 80))]
)
def test_held_out_windows_are_the_same_each_time_and_spread_over_the_text(batches, starts):
    found = list(held_out_batches(POSITIONS, context=CONTEXT, batch_size=3, batches=batches))
    assert all(len(ids) == 3 for ids, _ in found[:-1])
    ids, targets = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    assert ids[:, 0].tolist() == list(starts)
    np.testing.assert_array_equal(targets, ids + 1)


def test_a_short_held_out_text_is_one_short_window():
    ((ids, targets),) = held_out_batches(POSITIONS[:4], context=CONTEXT, batch_size=3, batches=2)
    assert (ids.tolist(), targets.tolist()) == ([[0, 1, 2]], [[1, 2, 3]])


def test_the_end_is_held_out():
    train, held_out = split_tail(POSITIONS, 0.1)
    assert (len(train), len(held_out)) == (96, 11)
    assert [*train, *held_out] == list(range(N))
    assert len(split_tail(POSITIONS, 0.0)[1]) == 0
