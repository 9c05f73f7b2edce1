"""python -m npgpt.train --data TEXT --out DIR: train a GPT-2, from scratch or from a checkpoint.

Progress goes to stderr, evaluations and samples to stdout, every step to DIR/log.csv. Exit code 0
when the run is finished or its time is up, 1 when it diverges, 2 for bad input, 130 after Ctrl-C
(which finishes the step and saves; a second one does not wait).
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from npgpt.files.io import expanded
from npgpt.text.corpus import token_sizes
from npgpt.text.tokenizer import decodable_ids
from npgpt.train import mpi
from npgpt.train.log import (
    PLOT,
    clock,
    open_log,
    plot_log,
    progress_bar,
    progress_text,
    readers_may_leave,
    say,
    write_row,
)
from npgpt.train.mpi import Ranks
from npgpt.train.options import Settings, parser
from npgpt.train.setup import Run, prepare
from npgpt.train.state import STATE, export_model
from npgpt.train.steps import Report, check_useful, evaluate_held_out, training_steps
from npgpt.train.windows import windows_per_epoch

PROG = "npgpt.train"
EXIT_DIVERGED = 1
SAMPLE_TOKENS = 100


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    given = vars(parser(PROG).parse_args(argv))
    folder, resume = expanded(given.pop("out")), given.pop("resume", False)
    ranks = mpi.connect()
    given["ranks"] = 1 if ranks is None else ranks.size
    with readers_may_leave(), contextlib.ExitStack() as held:
        if ranks is None:
            return _rank_zero(prepare(folder, given, resume, held))
        run = ranks.first_then_others(
            lambda: prepare(folder, given, resume, held),
            lambda: prepare(folder, given, resume=True),
        )
        with ranks.all_or_none(PROG):
            return _rank_zero(run, ranks) if ranks.rank == 0 else _worker(run, ranks)


def _rank_zero(run: Run, ranks: Ranks | None = None) -> int:
    """Do the steps that are left, and write and print; returns the exit code."""
    prompt = _prompt(run)
    _introduce(run)
    if run.step == run.settings.steps:
        export_model(run.folder, run.model, run.settings.save_dtype)
        return 0
    with _stop_signals() as caught, open_log(run.folder, run.step) as log:
        try:
            _train(run, prompt, log, caught, ranks)
        except FloatingPointError as error:
            print(
                f"{PROG}: stopped, {error}. {run.folder / STATE} keeps the last state that was "
                "saved; start anew with a smaller --lr, a longer --warmup, or with --clip.",
                file=sys.stderr,
            )
            return EXIT_DIVERGED
    return 128 + caught[0] if caught else 0


def _worker(run: Run, ranks: Ranks) -> int:
    """The steps of a rank that writes nothing; returns the exit code."""
    with _stop_signals() as caught:
        try:
            for report in _steps(run, ranks):
                if _pauses(run.settings, report.step):
                    _check_useful(run, report.step)
                if ranks.any(bool(caught)):
                    break
        except FloatingPointError:
            return EXIT_DIVERGED
    return 0


def _steps(run: Run, ranks: Ranks | None) -> Iterator[Report]:
    recipe, ids = run.settings.recipe, run.texts.ids
    return training_steps(run.model, run.optimizer, ids, recipe, done=run.step, ranks=ranks)


def _train(
    run: Run, prompt: list[int], log: TextIO, caught: list[int], ranks: Ranks | None
) -> None:
    """All steps from here on, with what is due after each: evaluation, save, sample."""
    settings, start, size = run.settings, time.monotonic(), _tokens_per_step(run)
    limit = math.inf if settings.time_limit is None else 60 * settings.time_limit
    with progress_bar(run.step, settings.steps, size) as bar:
        for report in _steps(run, ranks):
            step, last = report.step, report.step == settings.steps
            measured: tuple[float | None, float | None] = (None, None)
            if _pauses(settings, step):
                _check_useful(run, step)
            if len(run.texts.held_out) and (last or _due(step, settings.eval_every)):
                measured = _evaluate(run, report)
            seconds = run.seconds + time.monotonic() - start
            row = (step, step * size, report.lr, report.norm, report.loss, *measured, seconds)
            write_row(log, row)
            bar.set_description_str(progress_text(step, settings.steps, report.loss), refresh=False)
            bar.update(size)
            stopping = bool(caught) or time.monotonic() - start > limit
            if ranks is not None:
                stopping = ranks.any(stopping)
            if last or stopping or _due(step, settings.save_every):
                if stopping:
                    _check_useful(run, step)
                run.save(step, seconds, going_on=not (last or stopping))
                drawn = plot_log(run.folder)
            if settings.sample_every and (last or _due(step, settings.sample_every)):
                _say_sample(run, prompt, step)
            if last or stopping:
                break
    print(f"{'done' if last else 'stopped'} after step {step}; saved in {run.folder}")
    if not drawn:
        print(f'no {PLOT}, which needs: pip install "npgpt[plot]"')


def _evaluate(run: Run, report: Report) -> tuple[float, float]:
    sizes = token_sizes(run.tokenizer, run.model.rows)
    held_out = evaluate_held_out(
        run.model,
        run.texts.held_out,
        sizes,
        context=run.settings.context,
        batch_size=run.settings.batch_size,
        batches=run.settings.eval_batches,
    )
    say(
        f"step {report.step}: train loss {report.loss:.4f}, held-out loss {held_out.loss:.4f}, "
        f"perplexity {held_out.perplexity:.2f}, {held_out.bits_per_byte:.4f} bits per byte"
    )
    return held_out.loss, held_out.bits_per_byte


def _say_sample(run: Run, prompt: list[int], step: int) -> None:
    """Print a sample, or warn of what went wrong: no sample is worth the end of a run."""
    try:
        sample = _sample(run, prompt, step)
    except ValueError as error:
        text = f"no sample was written after step {step}: {error}"
        warnings.warn(text, UserWarning, stacklevel=2)
    else:
        say(sample)


def _sample(run: Run, prompt: list[int], step: int) -> str:
    """What the model writes by now, the prompt included."""
    rotary = getattr(run.model.config, "rotary", None)  # a Llama's
    new = run.model.generate(
        prompt,
        SAMPLE_TOKENS,
        temperature=0.8,
        seed=run.settings.seed + step,
        allowed=decodable_ids(run.tokenizer, run.model.rows),
        slide=True,
        # A cache cannot follow angles that change with the length of the text.
        use_cache=rotary is None or rotary.same_angles is None,
    )
    marks = {run.end_of_text, *run.tokenizer.frame[0]}
    ids = [token for token in [*prompt, *new] if token not in marks]
    return f"--- sample after step {step}\n{run.tokenizer.decode(ids)}\n---"


def _prompt(run: Run) -> list[int]:
    """Where samples start: end-of-text and the prompt given, or else the first training token."""
    given, end = run.tokenizer.frame
    start = [] if run.end_of_text is None or given else [run.end_of_text]
    ids = start + run.tokenizer.encode(run.settings.sample_prompt)
    ids = ids[: len(ids) - len(end)]  # the end of a text, which is to go on
    return ids or [int(run.texts.ids[0])]


def _introduce(run: Run) -> None:
    settings, (ids, held_out) = run.settings, run.texts
    windows = settings.steps * settings.batch_size * settings.grad_accum * settings.ranks
    epochs = windows / windows_per_epoch(len(ids), settings.context)
    print(
        f"{run.model.num_params():,} parameters; {len(ids):,} tokens to train on, "
        f"{len(held_out):,} held out; {settings.steps:,} steps of {_tokens_per_step(run):,} "
        f"tokens, {epochs:.2f} epochs",
        flush=True,
    )
    so_far = f"after step {run.step} ({clock(run.seconds)} so far)"
    if run.step == settings.steps:
        print(f"finished {so_far}; to extend it, resume it with --steps N, N above {run.step}")
    elif run.step:
        print(f"going on {so_far}", flush=True)


def _tokens_per_step(run: Run) -> int:
    s = run.settings
    return s.batch_size * s.grad_accum * s.context * s.ranks


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _pauses(settings: Settings, step: int) -> bool:
    """Whether more is due after this step than the next one, for which the model must be good."""
    every = settings.save_every, settings.eval_every, settings.sample_every
    return step == settings.steps or any(_due(step, each) for each in every)


def _check_useful(run: Run, step: int) -> None:
    """The same on every rank, so that all of them stop here or none does."""
    check_useful(run.model, run.texts.ids, run.settings.context, step)


@contextlib.contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """The signal that asked to stop, once it came in; a second one interrupts the step."""
    caught: list[int] = []

    def catch(number: int, _frame: Any) -> None:
        if caught:
            if number in hang_ups:  # which a shell hands on to its jobs, so that it comes twice
                return
            raise KeyboardInterrupt
        caught.append(number)
        with contextlib.suppress(OSError):  # a terminal that hung up takes no words
            print(f"{PROG}: finishing this step, then saving", file=sys.stderr, flush=True)

    # What a closed terminal sends, on Windows the second; under `nohup` it is ignored.
    found = [getattr(signal, n) for n in ("SIGHUP", "SIGBREAK") if hasattr(signal, n)]
    hang_ups = [number for number in found if signal.getsignal(number) is not signal.SIG_IGN]
    signals = (signal.SIGINT, signal.SIGTERM, *hang_ups)
    before = [signal.signal(number, catch) for number in signals]
    try:
        yield caught
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler or signal.SIG_DFL)  # None: it was not Python's
