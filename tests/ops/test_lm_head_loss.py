"""lm_head and cross-entropy in blocks of rows equal the two operations one after the other."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from npgpt.ops import lm_head_loss
from npgpt.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward
from npgpt.ops.lm_head import lm_head_backward, lm_head_forward
from npgpt.ops.lm_head_loss import lm_head_loss_backward, lm_head_loss_forward
from tests.gradcheck import relative_error

V, D = 30, 8


def two_operations(x, targets, table, dloss):
    logits, saved_head = lm_head_forward(x, table)
    loss, saved_loss = cross_entropy_forward(logits, targets)
    return loss, *lm_head_backward(cross_entropy_backward(dloss, saved_loss), saved_head)


@pytest.mark.parametrize("rows", [1, 4, 7, 100])
@pytest.mark.parametrize("dloss", [1.0, 0.3])
def test_equals_the_two_operations(rng, monkeypatch, rows, dloss) -> None:
    monkeypatch.setattr(lm_head_loss, "ROWS", rows)
    x, table = 10 * rng.standard_normal((3, 5, D)), 10 * rng.standard_normal((V, D))
    targets = rng.integers(0, V, (3, 5))
    targets[1, 2:] = -100
    loss, saved = lm_head_loss_forward(x, targets, table)
    found = (loss, *lm_head_loss_backward(dloss, saved))
    for got, want in zip(found, two_operations(x, targets, table, dloss), strict=True):
        assert relative_error(np.asarray(got), np.asarray(want)) <= 1e-14


def test_without_targets_loss_and_gradients_are_zero(rng) -> None:
    x, table = rng.standard_normal((5, D)), rng.standard_normal((V, D))
    loss, saved = lm_head_loss_forward(x, np.full(5, -100), table)
    assert loss == 0
    assert not any(grad.any() for grad in lm_head_loss_backward(1.0, saved))


@pytest.mark.parametrize("target", [-1, V])
def test_targets_outside_the_vocabulary_are_refused(rng, target) -> None:
    targets = np.array([3, target])
    with pytest.raises(ValueError, match=rf"target {target} at index \[1\] is neither in 0..29"):
        lm_head_loss_forward(rng.standard_normal((2, D)), targets, rng.standard_normal((V, D)))


def test_memory_is_that_of_one_block(rng, monkeypatch) -> None:
    monkeypatch.setattr(lm_head_loss, "ROWS", 16)
    x, table = rng.standard_normal((256, 4)), rng.standard_normal((5000, 4))
    targets = rng.integers(0, 5000, 256)
    tracemalloc.start()
    lm_head_loss_forward(x, targets, table)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    block = 16 * 5000 * 8
    assert block < peak < 2 * block  # 256 rows would be 16 of them
