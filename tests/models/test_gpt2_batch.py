"""GPT-2 on batches: batched equals single, and padding on either side changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.ops.mask import causal_mask
from tests.builders.gpt2 import random_gpt2
from tests.gradcheck import relative_error

V = 19
LENGTHS = (9, 4, 7)  # of the rows below, which padding makes equally long

ROUNDING = [(np.float64, 1e-13), (np.float32, 2e-6)]


def random_rows(rng):
    """Texts of different lengths, and the targets of each."""
    return [rng.integers(0, V, (2, n)) for n in LENGTHS]


def padded(rows, side, rng):
    """ids, targets and attention_mask of a batch; what stands in the padding is random."""
    left = {"left": lambda n: 13 - n, "right": lambda n: 0, "both": lambda n: (13 - n) // 2}[side]
    ids = rng.integers(0, V, (len(rows), 13))  # wider than the context of 11, which holds them all
    targets, attention_mask = np.full_like(ids, -100), np.zeros_like(ids)
    for b, (row, row_targets) in enumerate(rows):
        real = slice(left(len(row)), left(len(row)) + len(row))
        ids[b, real], targets[b, real], attention_mask[b, real] = row, row_targets, 1
    return ids, targets, attention_mask


@pytest.mark.parametrize(("dtype", "tolerance"), ROUNDING)
@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_padding_changes_no_logits_no_loss_no_gradient(rng, side, dtype, tolerance) -> None:
    model, rows = random_gpt2(rng, dtype, extreme=True), random_rows(rng)
    ids, targets, attention_mask = padded(rows, side, rng)
    logits = model(ids, attention_mask)
    loss, grads = model.loss_and_grads(ids, targets, attention_mask)

    singles = [model.loss_and_grads(*row) for row in rows]
    share = np.array(LENGTHS) / sum(LENGTHS)
    single_loss = sum(w * row_loss for w, (row_loss, _) in zip(share, singles, strict=True))
    assert np.isfinite(logits).all()  # the padding's own as well
    for b, (row, _) in enumerate(rows):
        assert relative_error(logits[b][attention_mask[b] == 1], model(row)) < tolerance
    assert float(loss) == pytest.approx(float(single_loss), rel=tolerance)
    for name, grad in grads.items():
        single = sum(w * row_grads[name] for w, (_, row_grads) in zip(share, singles, strict=True))
        assert relative_error(grad, single) < 10 * tolerance, name


def test_what_stands_in_the_padding_does_not_matter(rng) -> None:
    model, rows = random_gpt2(rng), random_rows(rng)
    ids, targets, attention_mask = padded(rows, "both", rng)
    other = np.where(attention_mask == 1, ids, (ids + 1) % V)
    loss, grads = model.loss_and_grads(ids, targets, attention_mask)
    other_loss, other_grads = model.loss_and_grads(other, targets, attention_mask)
    real = attention_mask == 1
    np.testing.assert_array_equal(
        model(ids, attention_mask)[real], model(other, attention_mask)[real]
    )
    assert loss == other_loss
    for name in grads:
        np.testing.assert_allclose(grads[name], other_grads[name], rtol=1e-12, atol=1e-16)


def test_without_attention_mask_the_padding_is_text(rng) -> None:
    model, ids = random_gpt2(rng), np.array([0, 0, 5, 3])
    real = model(ids, [0, 0, 1, 1])[2:]
    np.testing.assert_allclose(real, model(ids[2:]), rtol=1e-12, atol=1e-13)
    assert np.abs(model(ids)[2:] - real).max() > 1e-2


@pytest.mark.parametrize(("dtype", "tolerance"), ROUNDING)
def test_a_batch_equals_its_rows(rng, dtype, tolerance) -> None:
    model, ids = random_gpt2(rng, dtype, extreme=True), rng.integers(0, V, (4, 11))
    logits = model(ids)
    assert logits.shape == (4, 11, V)
    for b in range(4):
        assert relative_error(logits[b], model(ids[b])) < tolerance


def test_a_row_alone_needs_no_batch_axis(rng) -> None:
    model, (ids, targets) = random_gpt2(rng), rng.integers(0, V, (2, 6))
    loss, grads = model.loss_and_grads(ids, targets)
    batch_loss, batch_grads = model.loss_and_grads(ids[None], targets[None])
    np.testing.assert_array_equal(model(ids), model(ids[None])[0])
    assert loss == batch_loss
    for name in grads:
        np.testing.assert_allclose(grads[name], batch_grads[name], rtol=1e-12, atol=1e-16)


def test_last_only_is_the_last_row_of_the_logits(rng) -> None:
    model, ids = random_gpt2(rng), rng.integers(0, V, (3, 6))
    last = model(ids, last_only=True)
    assert last.shape == (3, 1, V)
    np.testing.assert_allclose(last, model(ids)[:, -1:], rtol=1e-12, atol=1e-13)


def test_padding_gets_no_weight(rng) -> None:
    model, attention_mask = random_gpt2(rng), np.array([[1, 1, 1, 1], [0, 0, 1, 1]])
    _, saved = model.forward(rng.integers(0, V, (2, 4)), attention_mask)
    positive = saved.blocks[1].attn.probs > 0
    assert (positive[0] == causal_mask(4, 4)).all()
    assert positive[1, 0].astype(int).tolist() == [[0] * 4, [0] * 4, [0, 0, 1, 0], [0, 0, 1, 1]]
