"""Training: accumulate gradients, clip, update; once per step, the same for every model.

All that a step draws at random comes from generators seeded with the seed and the step, so the
number of the step is the whole state of the randomness and of the place in the data: a run that is
resumed computes, bit for bit, what it would have computed undisturbed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from npgpt.files.tensors import broken_names
from npgpt.models.common import Params
from npgpt.models.gpt2.model import GPT2
from npgpt.models.llama.model import Llama
from npgpt.ops.cross_entropy import IGNORE_INDEX, cross_entropy_forward
from npgpt.train.optim import Moments, adamw_step, clip_gradients, learning_rate, muon_step
from npgpt.train.windows import held_out_batches, training_batch

if TYPE_CHECKING:
    from npgpt.train.mpi import Ranks

DROPOUT_STREAM = 2  # keeps these draws apart from others with the same seed

Batch = tuple[np.ndarray, np.ndarray]  # ids and targets, both [B, T]


class Recipe(NamedTuple):
    """How to train; `python -m npgpt.train` has an option of each name."""

    steps: int
    batch_size: int  # windows at a time
    grad_accum: int  # such batches per step
    context: int  # tokens of a window
    lr: float  # at the peak of the schedule
    min_lr: float  # at its end
    warmup: int  # steps of its rise
    weight_decay: float
    beta1: float
    beta2: float
    clip: float  # bound of the gradients' global norm; 0: none
    dropout: float
    seed: int
    optimizer: str = "adamw"  # or another of `optim.OPTIMIZERS`


class Report(NamedTuple):
    """One step: its number from 1, mean loss in nats, rate, gradient norm before clipping."""

    step: int
    loss: float
    lr: float
    norm: float


class HeldOut(NamedTuple):
    """What `evaluate_held_out` measured: nats per token, and bits per byte of text."""

    loss: float
    bits_per_byte: float

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 700.0))


def training_steps(
    model: GPT2 | Llama,
    state: Moments,
    ids: np.ndarray,
    recipe: Recipe,
    *,
    done: int = 0,
    ranks: Ranks | None = None,
) -> Iterator[Report]:
    """Train in place, from step `done` + 1 to `recipe.steps`; yields after each update.

    Args:
        model, state: changed in place.
        ids: the training text [N].
        ranks: the processes to share each step with, which is then `ranks.size` times as large.

    Raises:
        FloatingPointError: loss or gradients are no longer finite, and the step updated nothing, or
            its update made weights or moments so.
    """
    size, windows = recipe.batch_size, recipe.batch_size * recipe.grad_accum
    rank, shares = (0, 1) if ranks is None else (ranks.rank, ranks.size)
    for step in range(done + 1, recipe.steps + 1):
        first = ((step - 1) * shares + rank) * windows
        inputs, targets = training_batch(
            ids, first, windows, context=recipe.context, seed=recipe.seed
        )
        batches = [(inputs[i : i + size], targets[i : i + size]) for i in range(0, windows, size)]
        yield training_step(model, state, batches, recipe, step, ranks)


def training_step(
    model: GPT2 | Llama,
    state: Moments,
    batches: Sequence[Batch],
    recipe: Recipe,
    step: int,
    ranks: Ranks | None = None,
) -> Report:
    """Gradients, clipping, one update; see `training_steps`. `step` counts from 1."""
    stream = (recipe.seed, DROPOUT_STREAM, step, 0 if ranks is None else ranks.rank)
    rng = np.random.default_rng(stream) if recipe.dropout else None
    with np.errstate(over="ignore", invalid="ignore"):  # the result is checked right below
        loss, grads = accumulated_gradients(model, batches, rng)
        if ranks is not None:
            loss = ranks.average(loss, grads, sum(count_targets(targets) for _, targets in batches))
        norm = clip_gradients(grads, recipe.clip)
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise FloatingPointError(
            f"no longer finite at step {step}: loss {loss}, gradient norm {norm}"
        )
    lr = learning_rate(
        step - 1,
        peak=recipe.lr,
        floor=recipe.min_lr,
        warmup=recipe.warmup,
        steps=recipe.steps,
    )
    with np.errstate(over="ignore", invalid="ignore"):
        update = muon_step if recipe.optimizer == "muon" else adamw_step
        update(
            model.params,
            grads,
            state,
            step=step,
            lr=lr,
            weight_decay=recipe.weight_decay,
            beta1=recipe.beta1,
            beta2=recipe.beta2,
        )
    _check_update(model, state, step, lr)
    return Report(step, loss, lr, norm)


def _check_update(model: GPT2 | Llama, state: Moments, step: int, lr: float) -> None:
    for what, arrays in (("", model.params), *zip(state._fields, state, strict=True)):
        if bad := broken_names(arrays):
            which = f"the {what} moment of {bad[0]}" if what else bad[0]
            raise FloatingPointError(
                f"no longer finite after the update of step {step} (learning rate {lr:g}): {which}"
            )


def check_useful(model: GPT2 | Llama, ids: np.ndarray, context: int, step: int) -> None:
    """Raise FloatingPointError if the weights are finite but useless, after far too large steps.

    That is a loss, on the first window of the training text [N], of more than ten times ln V, which
    a guess among all V tokens has: no model that learns or has learned is so wrong.
    """
    window = ids[: context + 1].astype(np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        loss = float(cross_entropy_forward(model(window[:-1]), window[1:])[0])
    guess = math.log(model.rows)
    if not loss <= 10 * guess:
        raise FloatingPointError(
            f"useless after step {step}: loss {loss:.4g}, where a guess has {guess:.4g}"
        )


def accumulated_gradients(
    model: GPT2 | Llama, batches: Sequence[Batch], rng: np.random.Generator | None = None
) -> tuple[float, Params]:
    """Mean loss and its gradients over all targets of several batches, as if they were one.

    Each batch weighs as many targets as it has that are not ignored: a mean of means would favour
    the targets of short batches.

        loss = Σ_b n_b loss_b / Σ_b n_b,  and so each gradient        n_b: targets of batch b

    Without any target loss and gradients are 0.
    """
    counts = [count_targets(targets) for _, targets in batches]
    total = max(1, sum(counts))
    mean, grads = 0.0, Params()
    for (ids, targets), count in zip(batches, counts, strict=True):
        loss, new = model.loss_and_grads(ids, targets, rng=rng)
        mean += float(loss) * (count / total)
        _add_weighted(grads, new, count / total)
    return mean, grads


def count_targets(targets: np.ndarray) -> int:
    """How many of the targets are to be predicted, that is, not ignored."""
    return int((targets != IGNORE_INDEX).sum())


def _add_weighted(grads: Params, new: Params, weight: float) -> None:
    """grads += weight · new, in place; the arrays of `new` are used up."""
    for name, grad in new.items():
        if weight != 1:
            grad *= weight
        if name in grads:
            grads[name] += grad
        else:
            grads[name] = grad


def evaluate_held_out(
    model: GPT2 | Llama,
    ids: np.ndarray,
    sizes: np.ndarray,
    *,
    context: int,
    batch_size: int,
    batches: int,
) -> HeldOut:
    """Loss on held-out text, in windows that start without context, the same ones every time.

        loss = Σ nats / tokens        bits per byte = Σ nats / (ln 2 · bytes)

    Args:
        ids: the held-out text [N].
        sizes: bytes of each id, see `npgpt.text.corpus.token_sizes`.
        context, batch_size, batches: tokens of a window, windows of a batch, batches at most.
    """
    nats, tokens, size = 0.0, 0, 0
    for inputs, targets in held_out_batches(
        ids, context=context, batch_size=batch_size, batches=batches
    ):
        loss, _ = cross_entropy_forward(model(inputs), targets)
        nats += float(loss) * targets.size
        tokens += targets.size
        size += int(sizes[targets].sum())
    return HeldOut(nats / tokens, nats / math.log(2) / size if size else math.nan)
