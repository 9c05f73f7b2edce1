"""The settings of a training run: for each its option, default and range, and whether a resumed run
may change it.
"""

# ruff: noqa: RUF009  (the calls in `Settings` make fields)

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import groupby
from typing import Any, get_args, get_type_hints

from npgpt import cli
from npgpt.models.gpt2.config import PRESETS as GPT2_PRESETS
from npgpt.text.learning import FEWEST_IDS
from npgpt.train.optim import OPTIMIZERS
from npgpt.train.steps import Recipe

PRESETS = {  # blocks, heads, width, context
    "nano": (4, 4, 128, 128),
    "tiny": (6, 4, 256, 256),
    **{name: (c.n_layer, c.n_head, c.n_embd, c.n_positions) for name, c in GPT2_PRESETS.items()},
}
LARGEST = 2**63  # more than any number of steps; the state keeps smaller integers only
MOST_TOKENS = 2**28  # of a step: gigabytes of ids alone
# How argparse reads a setting of each type.
ARGUMENTS: dict[Any, dict[str, Any]] = {
    bool: {"action": "store_true"},
    int: {"type": int, "metavar": "N"},
    float: {"type": float, "metavar": "X"},
    list[str]: {"nargs": "+", "metavar": "PATH"},
}


def _setting(
    group: str | None,
    default: Any,
    help: str | None = None,
    low: float | None = None,
    below: float = math.inf,
    *,
    changeable: bool = False,
    **argument: Any,
) -> Any:
    """A field of `Settings`.

    Args:
        group: of the option in --help; None: there is no option.
        default: the value, or a function of the settings given and those that stand before it.
        low, below: the range of a number, without `below` itself; low None: it is no number.
        changeable: whether a resumed run may change it, because the weights do not depend on it.
        argument: what `add_argument` needs beyond the field's type.
    """
    return field(
        metadata={
            "group": group,
            "default": default if callable(default) else lambda _: default,
            "low": low,
            "below": below,
            "changeable": changeable,
            "argument": {"help": help, **argument},
        }
    )


def _size(index: int, with_init: int | None = None) -> Callable[[Mapping[str, Any]], int | None]:
    """The default of a size: the preset's, or `with_init` where a checkpoint brings the sizes."""
    return lambda s: with_init if s.get("init") else PRESETS[s["preset"] or "nano"][index]


_text, _model = partial(_setting, "text"), partial(_setting, "model")
_optimizer = partial(_setting, "optimizer")
_report = partial(_setting, "evaluation, samples, checkpoints", changeable=True)


@dataclass(frozen=True)
class Settings:
    """All settings of a run, as options are named; the file of its state keeps them."""

    # The texts may have moved: a resumed run compares their content instead.
    data: str = _text(
        None, "a UTF-8 text file, or a folder of .txt files", changeable=True, metavar="PATH"
    )
    val: list[str] | None = _text(
        None, "held-out texts; those within --data are left out", changeable=True
    )
    val_fraction: float = _text(
        lambda s: 0.0 if s["val"] else 0.1, "or hold out the end of --data (0.1)", 0, 1
    )
    special: bool = _text(False, "<|endoftext|> in a text is the token, not text")

    preset: str | None = _model(
        None, "sizes (nano); single ones can be overridden:", choices=[*PRESETS]
    )
    n_layer: int | None = _model(_size(0), low=1)
    n_head: int | None = _model(_size(1), low=1)
    n_embd: int | None = _model(_size(2), low=1)
    context: int = _model(_size(3, with_init=0), low=2)  # 0 until --init's model is loaded
    vocab_from: str | None = _model(
        None, "a folder with vocabulary files (one id per byte)", metavar="FOLDER"
    )
    vocab_size: int | None = _model(
        None, "or learn byte pairs from --data, for so many ids in all", FEWEST_IDS
    )
    merge_cjk: bool = _model(False, "learn pairs across Chinese, Japanese, Korean characters, too")
    init: str | None = _model(
        None, "fine-tune this: a folder, weights/NAME, or a hub id", metavar="MODEL"
    )
    dropout: float = _model(0.0, "everywhere where GPT-2 has it (0)", 0, 1, metavar="P")
    dtype: str = _model("float32", "of parameters and moments (float32)", choices=[*cli.DTYPES])
    save_dtype: str = _model(
        lambda s: s["dtype"],
        "of model.safetensors (--dtype)",
        changeable=True,
        choices=["float16", *cli.DTYPES],
    )
    seed: int = _model(0, "of everything random (0)", 0)

    optimizer: str = _optimizer(
        "adamw", "of the blocks' matrices; AdamW has the rest (adamw)", choices=[*OPTIMIZERS]
    )
    steps: int = _optimizer(2000, "updates (2000)", 1, changeable=True)
    batch_size: int = _optimizer(16, "windows at a time (16)", 1)
    grad_accum: int = _optimizer(1, "batches per update (1)", 1)
    lr: float = _optimizer(
        lambda s: 1e-3 if s["init"] is None else 3e-5,
        "peak learning rate (1e-3; 3e-5 with --init)",
        0,
    )
    min_lr: float = _optimizer(lambda s: s["lr"] / 10, "where the cosine ends (a tenth of --lr)", 0)
    warmup: int = _optimizer(
        lambda s: min(100, s["steps"] // 10), "steps of the rise (100, at most a tenth)", 0
    )
    weight_decay: float = _optimizer(0.1, "of matrices and embeddings only (0.1)", 0)
    beta1: float = _optimizer(0.9, "AdamW's (0.9)", 0, 1)
    beta2: float = _optimizer(0.99, "AdamW's (0.99)", 0, 1)
    clip: float = _optimizer(1.0, "bound of the gradients' global norm (1; 0: none)", 0)

    eval_every: int = _report(250, "steps between evaluations (250; 0: at the end)", 0)
    eval_batches: int = _report(20, "held-out batches for each (20)", 1)
    save_every: int = _report(250, "steps between saves (250; 0: at the end)", 0)
    sample_every: int = _report(500, "steps between samples (500; 0: none)", 0)
    sample_prompt: str = _report(
        "", "what samples start with (end-of-text)", metavar="TEXT", type=cli.text
    )
    time_limit: float | None = _report(
        None, "save and stop after so many minutes", 0, metavar="MIN"
    )

    ranks: int = _setting(None, 1, low=1)

    @property
    def recipe(self) -> Recipe:
        """What of it decides about the weights, once the model and the text are there."""
        return Recipe(**{name: getattr(self, name) for name in Recipe._fields})


def new_settings(given: Mapping[str, Any]) -> Settings:
    """The settings of a new run: what was given, presets and defaults for the rest.

    Raises ValueError, one sentence, for settings that are out of range or contradict each other.
    """
    if "data" not in given:
        raise ValueError("there is nothing to train on: name a text file or a folder with --data.")
    sizes = [option_of(name) for name in ("preset", "n_layer", "n_head", "n_embd") if name in given]
    if "init" in given and sizes:
        raise ValueError(f"--init brings the model's sizes, so it does not go with {sizes[0]}.")
    brought = [option_of(name) for name in ("init", "vocab_from") if name in given]
    if "vocab_size" in given and brought:
        raise ValueError(f"{brought[0]} brings a vocabulary, so it does not go with --vocab-size.")
    if given.get("val") and "val_fraction" in given:
        raise ValueError("give either --val or --val-fraction, not both.")
    check_ranges(given)
    values: dict[str, Any] = {}
    for each in fields(Settings):
        default = each.metadata["default"]({**given, **values})
        values[each.name] = given.get(each.name, default)
    settings = Settings(**values)
    check_together(settings)
    _warn_of_idle(settings, given)
    return settings


def resumed_settings(before: Settings, given: Mapping[str, Any], done: int) -> Settings:
    """The settings of a run that goes on after `done` steps; a time limit holds for one call only.

    With other `steps` the learning rate follows, from here on, the schedule of a run that was
    planned for so many from the beginning; nothing else depends on their number. Where the rate is
    the same in both schedules, the weights therefore equal, bit for bit, those of the longer run.

    Raises ValueError, one sentence, for a setting that the steps done do not allow.
    """
    for each in fields(Settings):
        old = getattr(before, each.name)
        if not each.metadata["changeable"] and given.get(each.name, old) != old:
            raise ValueError(
                f"this run was started with {option_of(each.name)} {old}, not {given[each.name]}, "
                "and resumes only as it began; for another way start a new run with --init and a "
                "new --out."
            )
    check_ranges(given)
    if (steps := given.get("steps", done)) < done:
        raise ValueError(
            f"this run has done {done} steps; --steps must be at least that, but is {steps}."
        )
    settings = replace(before, **{"time_limit": None, **given})
    changed = {name: value for name, value in given.items() if value != getattr(before, name)}
    _warn_of_idle(settings, changed, settings.steps == done)
    return settings


def check_ranges(values: Mapping[str, Any], where: str = "") -> None:
    """Raise ValueError, naming the option, for a value out of its range."""
    for each in fields(Settings):
        value, low, below = values.get(each.name), each.metadata["low"], each.metadata["below"]
        if value is None:
            continue
        choices = each.metadata["argument"].get("choices", [value])
        if value not in choices:
            raise ValueError(f"{where}{option_of(each.name)} must be one of {', '.join(choices)}.")
        if isinstance(value, int) and value >= LARGEST:
            below = LARGEST
        if low is not None and not (low <= value < below and math.isfinite(value)):
            bounds = f"at least {low:g}" if below == math.inf else f"in [{low:g}, {below:g})"
            raise ValueError(
                f"{where}{option_of(each.name)} must be {bounds}, but is {value!s:.40}."
            )


def check_together(settings: Settings, where: str = "") -> None:
    """Raise ValueError for settings that do not go together; a resumed run may change none."""
    if settings.min_lr > settings.lr:
        raise ValueError(f"{where}--min-lr {settings.min_lr} is above --lr {settings.lr}.")
    tokens = settings.batch_size * settings.grad_accum * max(1, settings.context)
    if tokens > MOST_TOKENS:
        raise ValueError(
            f"{where}a step reads --batch-size {settings.batch_size} times --grad-accum "
            f"{settings.grad_accum} windows, {tokens:,} tokens, which no machine can hold."
        )


def _warn_of_idle(settings: Settings, given: Mapping[str, Any], finished: bool = False) -> None:
    """Warn of options that have no effect beside the others; a `finished` run does no step."""
    idle: dict[str, list[str]] = {}  # why, and which
    if given.keys() >= {"n_layer", "n_head", "n_embd", "context"}:
        idle["every size is given"] = ["preset"]
    if settings.vocab_size is None:
        idle["no byte pairs are learned"] = ["merge_cjk"]
    if settings.sample_every == 0:
        idle["no samples are written"] = ["sample_prompt"]
    if settings.val is None and settings.val_fraction == 0:
        idle["nothing is held out"] = ["eval_every", "eval_batches"]
    if settings.warmup >= settings.steps:
        idle["--warmup lasts to the end"] = ["min_lr"]
    if finished:
        names = [each.name for each in fields(Settings) if each.metadata["changeable"]]
        used = ("data", "val", "steps", "save_dtype")
        idle = {"the run is finished": [name for name in names if name not in used]}
    for why, names in idle.items():
        for name in given.keys() & {*names}:
            warnings.warn(f"{option_of(name)} has no effect: {why}.", UserWarning, stacklevel=4)


def option_of(name: str) -> str:
    """What sets a setting on the command line."""
    return "mpiexec -n" if name == "ranks" else f"--{name.replace('_', '-')}"


def parser(prog: str) -> argparse.ArgumentParser:
    """The command line; options that are not given are absent from the namespace."""
    whole = cli.new_parser(
        prog,
        "Train a GPT-2 on text, in NumPy: from scratch, or from a checkpoint.",
        argument_default=argparse.SUPPRESS,
    )
    add = whole.add_argument
    add("--out", required=True, metavar="DIR", help="folder of the run, its token ids included")
    add("--resume", action="store_true", help="go on with --out's run; more --steps extend it")
    hints = get_type_hints(Settings)
    optional = [each for each in fields(Settings) if each.metadata["group"]]
    for title, options in groupby(optional, lambda each: each.metadata["group"]):
        add = whole.add_argument_group(title).add_argument
        for each in options:
            kind = (get_args(hints[each.name]) or [hints[each.name]])[0]
            add(option_of(each.name), **{**ARGUMENTS.get(kind, {}), **each.metadata["argument"]})
    return whole
