"""The options of `python -m npgpt.train`: defaults, checks, what resuming allows."""

from __future__ import annotations

import argparse
import math
from typing import Any

from npgpt import cli
from npgpt.models.gpt2.config import PRESETS as GPT2_PRESETS

PRESETS = {  # blocks, heads, width, context
    "nano": (4, 4, 128, 128),
    "tiny": (6, 4, 256, 256),
    **{name: (c.n_layer, c.n_head, c.n_embd, c.n_positions) for name, c in GPT2_PRESETS.items()},
}
SIZES = ("n_layer", "n_head", "n_embd", "context")
DEFAULTS: dict[str, Any] = {
    "preset": None,
    **dict.fromkeys(SIZES),
    "vocab_from": None,
    "init": None,
    "val": None,
    "val_fraction": None,
    "special": False,
    "dtype": "float32",
    "save_dtype": None,
    "steps": 2000,
    "batch_size": 16,
    "grad_accum": 1,
    "lr": None,
    "min_lr": None,
    "warmup": None,
    "weight_decay": 0.1,
    "beta1": 0.9,
    "beta2": 0.99,
    "clip": 1.0,
    "dropout": 0.0,
    "seed": 0,
    "eval_every": 250,
    "eval_batches": 20,
    "save_every": 250,
    "sample_every": 500,
    "sample_prompt": "",
    "time_limit": None,
    "ranks": 1,
}
# What a resumed run may change, for it does not touch the weights. The data may have moved: its
# content is compared instead.
CHANGEABLE = {
    "data", "val", "save_dtype", "eval_every", "eval_batches", "save_every", "sample_every",
    "sample_prompt", "time_limit",
}  # fmt: skip


def new_settings(given: dict[str, Any]) -> argparse.Namespace:
    """All settings of a new run: what was given, presets and defaults for the rest.

    Raises ValueError, one sentence, for settings that are out of range or contradict each other.
    """
    if "data" not in given:
        raise ValueError("there is nothing to train on: name a text file or a folder with --data.")
    settings = argparse.Namespace(**{**DEFAULTS, **given})
    shape = [f"--{name.replace('_', '-')}" for name in ("preset", *SIZES[:3]) if name in given]
    if settings.init is not None and shape:
        raise ValueError(f"--init brings the model's sizes, so it does not go with {shape[0]}.")
    if settings.init is None:
        preset = PRESETS[settings.preset or "nano"]
        for name, size in zip(SIZES, preset, strict=True):
            if getattr(settings, name) is None:
                setattr(settings, name, size)
    if settings.val_fraction is None:
        settings.val_fraction = 0.0 if settings.val else 0.1
    elif settings.val:
        raise ValueError("give either --val or --val-fraction, not both.")
    if settings.lr is None:
        settings.lr = 1e-3 if settings.init is None else 3e-5
    if settings.min_lr is None:
        settings.min_lr = settings.lr / 10
    if settings.warmup is None:
        settings.warmup = min(100, settings.steps // 10)
    if settings.save_dtype is None:
        settings.save_dtype = settings.dtype
    check(settings)
    return settings


def resumed_settings(saved: dict[str, Any], given: dict[str, Any]) -> argparse.Namespace:
    """The settings of a run that goes on; ValueError for one that would change its way."""
    for name, value in given.items():
        before = saved.get(name, DEFAULTS.get(name))
        if name not in CHANGEABLE and before != value:
            option = "mpiexec -n" if name == "ranks" else f"--{name.replace('_', '-')}"
            raise ValueError(
                f"this run was started with {option} {before}, not {value}, "
                "and resumes only as it began; for another way start a new run with --init and a "
                "new --out."
            )
    # A limit holds for one sitting only.
    settings = argparse.Namespace(**{**DEFAULTS, **saved, "time_limit": None, **given})
    check(settings)
    return settings


def check(settings: argparse.Namespace) -> None:
    """Raise ValueError, naming the option, for a number out of its range."""

    def require(name: str, low: float, high: float, *, open_end: bool = False) -> None:
        value = getattr(settings, name)
        if value is None:
            return
        inside = low <= value < high if open_end else low <= value <= high
        if not (math.isfinite(value) and inside):
            bounds = f"at least {low:g}" if high == math.inf else f"in [{low:g}, {high:g}"
            bounds += "" if high == math.inf else (")" if open_end else "]")
            raise ValueError(f"--{name.replace('_', '-')} must be {bounds}, but is {value}.")

    require("context", 2, math.inf)
    for name in (*SIZES, "steps", "batch_size", "grad_accum", "eval_batches"):
        require(name, 1, math.inf)
    for name in ("lr", "min_lr", "warmup", "weight_decay", "clip", "seed", "time_limit"):
        require(name, 0, math.inf)
    for name in ("eval_every", "save_every", "sample_every"):
        require(name, 0, math.inf)
    for name in ("beta1", "beta2", "dropout", "val_fraction"):
        require(name, 0, 1, open_end=True)
    if settings.min_lr > settings.lr:
        raise ValueError(f"--min-lr {settings.min_lr} is above --lr {settings.lr}.")


def parser(prog: str) -> argparse.ArgumentParser:
    """The command line; options that are not given are absent from the namespace."""
    whole = argparse.ArgumentParser(
        prog=f"python -m {prog}",
        description="Train a GPT-2 on text, in NumPy: from scratch, or from a checkpoint.",
        argument_default=argparse.SUPPRESS,
    )
    whole.add_argument("--out", required=True, metavar="DIR", help="folder of the run")
    whole.add_argument("--resume", action="store_true", help="go on with the run in --out")
    _add_data(whole.add_argument_group("text").add_argument)
    _add_model(whole.add_argument_group("model").add_argument)
    _add_optimizer(whole.add_argument_group("optimizer").add_argument)
    _add_reports(whole.add_argument_group("evaluation, samples, checkpoints").add_argument)
    return whole


def _add_data(add: Any) -> None:
    add("--data", metavar="PATH", help="a UTF-8 text file, or a folder of .txt files")
    add("--val", nargs="+", metavar="PATH", help="held-out texts; those within --data are left out")
    add("--val-fraction", type=float, metavar="X", help="or hold out the end of --data (0.1)")
    add("--special", action="store_true", help="<|endoftext|> in a text is the token, not text")


def _add_model(add: Any) -> None:
    add("--preset", choices=PRESETS, help="sizes (nano); single ones can be overridden:")
    for name in SIZES:
        add(f"--{name.replace('_', '-')}", type=int, metavar="N")
    add("--vocab-from", metavar="FOLDER", help="a folder with vocabulary files (one id per byte)")
    add("--init", metavar="MODEL", help="fine-tune this: a folder, weights/NAME, or a hub id")
    add("--dropout", type=float, metavar="P", help="everywhere where GPT-2 has it (0)")
    add("--dtype", choices=cli.DTYPES, help="of parameters and moments (float32)")
    add("--save-dtype", choices=("float16", *cli.DTYPES), help="of model.safetensors (--dtype)")
    add("--seed", type=int, metavar="N", help="of everything random (0)")


def _add_optimizer(add: Any) -> None:
    add("--steps", type=int, metavar="N", help="updates (2000)")
    add("--batch-size", type=int, metavar="N", help="windows at a time (16)")
    add("--grad-accum", type=int, metavar="N", help="batches per update (1)")
    add("--lr", type=float, metavar="X", help="peak learning rate (1e-3; 3e-5 with --init)")
    add("--min-lr", type=float, metavar="X", help="where the cosine ends (a tenth of --lr)")
    add("--warmup", type=int, metavar="N", help="steps of the rise (100, at most a tenth)")
    add("--weight-decay", type=float, metavar="X", help="of matrices and embeddings only (0.1)")
    add("--beta1", type=float, metavar="X", help="AdamW's (0.9)")
    add("--beta2", type=float, metavar="X", help="AdamW's (0.99)")
    add("--clip", type=float, metavar="X", help="bound of the gradients' global norm (1; 0: none)")


def _add_reports(add: Any) -> None:
    add(
        "--eval-every", type=int, metavar="N", help="steps between evaluations (250; 0: at the end)"
    )
    add("--eval-batches", type=int, metavar="N", help="held-out batches for each (20)")
    add("--save-every", type=int, metavar="N", help="steps between saves (250; 0: at the end)")
    add("--sample-every", type=int, metavar="N", help="steps between samples (500; 0: none)")
    add("--sample-prompt", metavar="TEXT", help="what samples start with (end-of-text)")
    add("--time-limit", type=float, metavar="MIN", help="save and stop after so many minutes")
