"""What a run reports: progress on stderr, `log.csv`, and its curve as `loss.png` (extra `plot`)."""

from __future__ import annotations

import csv
import importlib.util
import io
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from npgpt.files.io import replacing

LOG, PLOT = "log.csv", "loss.png"
COLUMNS = (
    "step",
    "tokens",
    "lr",
    "grad_norm",
    "train_loss",
    "val_loss",
    "bits_per_byte",
    "seconds",
)
PLAIN_INTERVAL = 30.0  # seconds between lines where stderr is no terminal


def open_log(folder: Path, step: int) -> TextIO:
    """`log.csv`, open for the row after `step`; rows of later steps, which were lost, go."""
    path = folder / LOG
    rows = [row for row in read_log(folder) if int(row["step"]) <= step]
    with (
        replacing(path) as (temporary,),
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return path.open("a", encoding="utf-8", newline="", buffering=1)


def write_row(log: TextIO, values: Sequence[object]) -> None:
    """Append a row; floats with nine digits, which give a float32 back exactly."""
    texts = [f"{v:.9g}" if isinstance(v, float) else "" if v is None else str(v) for v in values]
    csv.writer(log).writerow(texts)


def read_log(folder: Path) -> list[dict[str, str]]:
    """The rows of `log.csv`, without one that a kill cut off; none if there is no file."""
    path = folder / LOG
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        lines = [line for line in file if line.endswith("\n")]
    return [row for row in csv.DictReader(lines) if row.get("step") and None not in row.values()]


def plot_log(folder: Path) -> bool:
    """Draw the losses of `log.csv` into `loss.png`; False without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    from matplotlib.figure import Figure

    rows = read_log(folder)
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="loss (nats per token)")
    curves = (("train_loss", "-", "training"), ("val_loss", "o-", "held out"))
    for column, style, label in curves:
        points = [(int(row["step"]), float(row[column])) for row in rows if row[column]]
        if points:
            axes.plot(*zip(*points, strict=True), style, label=label)
    if rows:
        axes.legend()
    try:
        with replacing(folder / PLOT) as (temporary,):
            figure.savefig(temporary, format="png")
    except OSError as error:  # someone has it open, or the disk is full: no reason to end a run
        warnings.warn(str(error), UserWarning, stacklevel=2)
    return True


def progress_bar(done: int, steps: int, tokens_per_step: int) -> tqdm:
    """A bar on stderr that counts tokens; where that is no terminal, a line every 30 seconds."""
    options: dict[str, Any] = {
        "initial": done * tokens_per_step,
        "total": steps * tokens_per_step,
        "unit": " tokens",
        "unit_scale": True,
        "desc": progress_text(done, steps),
    }
    if sys.stderr.isatty():
        return tqdm(**options, dynamic_ncols=True)
    return tqdm(
        **options,
        bar_format="{desc}, {rate_fmt}, {remaining} left",
        mininterval=PLAIN_INTERVAL,
        miniters=1,
        file=_PlainLines(),
    )


def progress_text(step: int, steps: int, loss: float | None = None) -> str:
    """What stands before the bar."""
    return f"step {step:,}/{steps:,}" + ("" if loss is None else f", loss {loss:.4f}")


class _PlainLines(io.TextIOBase):
    """Passes what a bar draws on to stderr, each state as a line of its own."""

    def write(self, text: str) -> int:
        if line := text.strip():
            print(line, file=sys.stderr, flush=True)
        return len(text)


def say(text: str) -> None:
    """Print text to stdout without spoiling the bar."""
    tqdm.write(text)
    sys.stdout.flush()


def clock(seconds: float) -> str:
    """75 -> "1:15", 3675 -> "1:01:15"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
