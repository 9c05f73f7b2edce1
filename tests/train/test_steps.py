"""One step of training: accumulation, what is not finite, randomness; loss on held-out text."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npgpt.models.gpt2.config import init_params
from npgpt.models.gpt2.model import GPT2
from npgpt.train import steps as training
from npgpt.train.mpi import Ranks
from npgpt.train.optim import OPTIMIZERS, new_adamw_state, new_muon_state
from npgpt.train.steps import (
    Recipe,
    accumulated_gradients,
    check_useful,
    evaluate_held_out,
    training_step,
    training_steps,
)
from npgpt.train.windows import training_batch
from tests.builders.gpt2 import byte_gpt2_config

RECIPE = Recipe(
    steps=4,
    batch_size=2,
    grad_accum=2,
    context=8,
    lr=1e-2,
    min_lr=1e-3,
    warmup=1,
    weight_decay=0.1,
    beta1=0.9,
    beta2=0.99,
    clip=1.0,
    dropout=0.0,
    seed=5,
)


def tiny_gpt2(rng, dropout=0.0):
    options = dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), dropout)
    config = byte_gpt2_config(vocab_size=31, **options)
    params = init_params(config, rng, np.float64)
    return GPT2(config, {name: 5 * param for name, param in params.items()})


def uneven_batches(rng):
    """Three batches with 7, 1 and 12 targets; all others are ignored."""
    ids, targets = rng.integers(31, size=(2, 6, 6))
    for rows, count in ((slice(0, 2), 7), (slice(2, 4), 1), (slice(4, 6), 12)):
        flat = targets[rows].reshape(-1)
        flat[count:] = -100
        targets[rows] = flat.reshape(2, 6)
    return ids, targets, [(ids[i : i + 2], targets[i : i + 2]) for i in (0, 2, 4)]


def test_accumulated_batches_equal_one_large_batch(rng):
    model = tiny_gpt2(rng)
    ids, targets, batches = uneven_batches(rng)
    loss, grads = accumulated_gradients(model, batches)
    wanted_loss, wanted = model.loss_and_grads(ids, targets)
    assert loss == pytest.approx(float(wanted_loss), rel=1e-13)
    for name, grad in wanted.items():
        np.testing.assert_allclose(grads[name], grad, rtol=1e-10, atol=1e-13, err_msg=name)
    mean_of_means = np.mean([float(model.loss_and_grads(*batch)[0]) for batch in batches])
    assert abs(mean_of_means - loss) > 0.01  # the figure that would be wrong


def test_without_any_target_loss_and_gradients_are_zero(rng):
    ignored = np.full((2, 6), -100)
    loss, grads = accumulated_gradients(tiny_gpt2(rng), [(ignored * 0, ignored)] * 2)
    assert loss == 0.0
    assert all(not grad.any() for grad in grads.values())


@pytest.mark.parametrize("name", ["wte.weight", "h.1.mlp.c_fc.bias"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_stops_with_the_step_and_updates_nothing(rng, name, bad):
    model = tiny_gpt2(rng)
    model.params[name].flat[0] = bad
    state, before = new_adamw_state(model.params), {n: p.copy() for n, p in model.params.items()}
    ids = np.zeros((2, 9), int)
    with pytest.raises(FloatingPointError, match=r"step 3: loss .*nan, gradient norm"):
        training_step(model, state, [(ids[:, :-1], ids[:, 1:])], RECIPE, 3)
    for part in before:
        np.testing.assert_array_equal(model.params[part], before[part])
        assert not state.first[part].any()
        assert not state.second[part].any()


def weights_after(recipe, stops=(), dropout=0.0):
    """All weights after the recipe, taken up anew after each of the stops."""
    rng = np.random.default_rng(1)
    model, text = tiny_gpt2(rng, dropout), rng.integers(31, size=50)
    new_state = new_muon_state if recipe.optimizer == "muon" else new_adamw_state
    state, done, losses = new_state(model.params), 0, []
    for stop in (*stops, recipe.steps):
        for report in training_steps(model, state, text, recipe, done=done):
            losses.append(report.loss)
            done = report.step
            if done == stop:
                break
    return np.concatenate([p.ravel() for p in model.params.values()]), losses


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_step_is_all_that_a_run_needs_to_go_on(optimizer, dropout):
    recipe = RECIPE._replace(dropout=dropout, optimizer=optimizer)
    whole, losses = weights_after(recipe, dropout=dropout)
    assert len(losses) == 4
    np.testing.assert_array_equal(weights_after(recipe, (1, 3), dropout)[0], whole)
    assert (weights_after(recipe._replace(seed=6), dropout=dropout)[0] != whole).mean() > 0.9


def test_dropout_draws_other_masks_in_each_step(rng):
    model, ids = tiny_gpt2(rng, 0.5), rng.integers(31, size=(2, 9))
    losses = []
    for step in (1, 2, 1):
        recipe, state = (
            RECIPE._replace(dropout=0.5, lr=0.0, min_lr=0.0),
            new_adamw_state(model.params),
        )
        batches = [(ids[:, :-1], ids[:, 1:])]
        losses.append(training_step(model, state, batches, recipe, step).loss)
    assert losses[0] == losses[2]
    assert abs(losses[0] - losses[1]) > 1e-3


def test_steps_follow_the_schedule_and_report_the_norm_before_clipping(rng):
    model, text = tiny_gpt2(rng), rng.integers(31, size=50)
    state = new_adamw_state(model.params)
    reports = list(training_steps(model, state, text, RECIPE._replace(clip=0.1)))
    assert [report.step for report in reports] == [1, 2, 3, 4]
    assert [report.lr for report in reports] == pytest.approx([5e-3, 1e-2, 7.75e-3, 3.25e-3])
    assert min(report.norm for report in reports) > 0.1


def test_held_out_loss_by_hand(rng):
    model, text = tiny_gpt2(rng), rng.integers(31, size=30)
    sizes = np.arange(31)
    held_out = evaluate_held_out(model, text, sizes, context=8, batch_size=2, batches=9)
    nats = []
    for start in (0, 8, 16):
        logits = model(text[start : start + 8])
        chances = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        nats += [-math.log(p[t]) for p, t in zip(chances, text[start + 1 :], strict=False)]
    assert held_out.loss == pytest.approx(np.mean(nats), rel=1e-12)
    bits = sum(nats) / math.log(2)
    assert held_out.bits_per_byte == pytest.approx(bits / sizes[text[1:25]].sum(), rel=1e-12)
    assert held_out.perplexity == pytest.approx(math.exp(np.mean(nats)), rel=1e-12)
    nothing = evaluate_held_out(model, text, 0 * sizes, context=8, batch_size=2, batches=1)
    assert math.isnan(nothing.bits_per_byte)


class Two(Ranks):
    """One of two ranks; what the other one sends is given, what this one sends is kept."""

    def __init__(self, other):
        self.rank, self.size, self.other = 0, 2, other

    def _add_up(self, buffer):
        self.sent = buffer.copy()
        buffer += self.other


def test_ranks_average_by_their_targets(rng):
    model = tiny_gpt2(rng)
    ids, targets, batches = uneven_batches(rng)
    sides = [accumulated_gradients(model, part) for part in (batches[:1], batches[1:])]
    ranks = [Two(0.0), Two(0.0)]
    for rank, (loss, grads), count in zip(ranks, sides, (7, 13), strict=True):
        rank.average(loss, {name: grad.copy() for name, grad in grads.items()}, count)
    loss, grads = sides[0]
    mean = Two(ranks[1].sent).average(loss, grads, 7)
    wanted_loss, wanted = model.loss_and_grads(ids, targets)
    assert mean == pytest.approx(float(wanted_loss), rel=1e-13)
    for name, grad in wanted.items():
        np.testing.assert_allclose(grads[name], grad, rtol=1e-10, atol=1e-13, err_msg=name)


def test_ranks_without_any_target_average_to_zero():
    grads = {"b": np.zeros(3)}
    assert Two(0.0).average(0.0, grads, 0) == 0.0
    assert not grads["b"].any()


def test_a_rank_reads_its_share_of_the_windows(rng, monkeypatch):
    seen = []

    def spy(ids, first, count, **options):
        seen.append((first, count))
        return training_batch(ids, first, count, **options)

    monkeypatch.setattr(training, "training_batch", spy)
    model = tiny_gpt2(rng)
    ranks, state = Two(0.0), new_adamw_state(model.params)
    ranks.rank = 1
    list(training_steps(model, state, rng.integers(31, size=50), RECIPE, ranks=ranks))
    assert seen == [(4, 4), (12, 4), (20, 4), (28, 4)]


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("params", "ln_f.bias"),
        ("first", "the first moment of ln_f.bias"),
        ("second", "the second moment of ln_f.bias"),  # stays alone: m / √∞ moves no weight
    ],
)
def test_weights_and_moments_are_checked_after_the_update(rng, part, says, monkeypatch):
    model, ids = tiny_gpt2(rng), rng.integers(31, size=60)
    state = new_adamw_state(model.params)

    def overflowing(params, grads, state, **_):
        arrays = {"params": params, "first": state.first, "second": state.second}[part]
        arrays["ln_f.bias"][3] = np.inf

    monkeypatch.setattr(training, "adamw_step", overflowing)
    wanted = rf"no longer finite after the update of step 1 \(learning rate 0.005\): {says}$"
    with pytest.raises(FloatingPointError, match=wanted):
        next(training_steps(model, state, ids, RECIPE))


def test_the_momentum_of_muon_is_checked_after_the_update_too(rng):
    model, ids = tiny_gpt2(rng), rng.integers(31, size=60)
    state, name = new_muon_state(model.params), "h.1.mlp.c_fc.weight"
    state.first[name][0, 0] = np.inf
    with pytest.raises(FloatingPointError, match=rf"no longer finite after the update .*{name}$"):
        next(training_steps(model, state, ids, RECIPE._replace(optimizer="muon")))


def test_muon_with_far_too_large_steps_diverges(rng):
    model, ids = tiny_gpt2(rng), rng.integers(31, size=60)
    recipe = RECIPE._replace(optimizer="muon", lr=1e200, warmup=0)
    with pytest.raises(FloatingPointError, match=r"no longer finite .*step [12]"):
        list(training_steps(model, new_muon_state(model.params), ids, recipe))


def test_useless_is_a_loss_of_more_than_ten_guesses(rng):
    """Logits of ln_f's bias alone: the loss is the gap between the token read and the target."""
    model, ids = tiny_gpt2(rng), np.tile(np.array([3, 4], np.uint16), 9)
    model.params["ln_f.weight"][:] = 0
    model.params["wte.weight"][:] = 0
    model.params["wte.weight"][5, 0] = 1
    guess = math.log(31)
    for gap in (0.0, 9.9 * guess):
        model.params["ln_f.bias"][0] = gap
        check_useful(model, ids, 8, step=7)
    for gap in (10.1 * guess, 1e9, np.nan):
        model.params["ln_f.bias"][0] = gap
        with pytest.raises(FloatingPointError, match=r"useless after step 7: loss .* has 3\.434$"):
            check_useful(model, ids, 8, step=7)
