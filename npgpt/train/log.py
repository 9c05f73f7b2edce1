"""What a run reports: progress on stderr, `log.csv`, and its curve as `loss.png` (extra `plot`)."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

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
    """`log.csv`, open for the row after `step`; rows of later steps, which were lost, go.

    Raises ValueError, naming the line, for a file that is no log.
    """
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
    try:
        csv.writer(log).writerow(texts)
    except OSError as error:
        raise OSError(f"{log.name} could not be written ({error.strerror}).") from error


def read_log(folder: Path) -> list[dict[str, str]]:
    """The rows of `log.csv`, without one that a kill cut off; none if there is no file.

    Raises ValueError, naming the line, for a file that is no log.
    """
    path, rows, last = folder / LOG, [], 0
    if not path.is_file():
        return []
    lines = path.read_bytes().rpartition(b"\n")[0].splitlines()
    for number, line in enumerate(lines, 1):
        values = line.decode(errors="replace").split(",")
        if number == 1 and tuple(values) == COLUMNS:
            continue
        if number == 1 or not _are_row(values) or int(values[0]) <= last:
            raise ValueError(
                f"{path}: line {number} is not a row of a training log; mend it, or remove "
                "the file to go on without its rows."
            )
        rows.append(dict(zip(COLUMNS, values, strict=True)))
        last = int(values[0])
    return rows


def _are_row(values: Sequence[str]) -> bool:
    """Whether these are the numbers of a row; what was not measured is empty."""
    try:
        for name, value in zip(COLUMNS, values, strict=True):
            if value or name not in ("val_loss", "bits_per_byte"):
                (int if name in ("step", "tokens") else float)(value)
    except ValueError:
        return False
    return True


def plot_log(folder: Path) -> bool:
    """Draw the losses of `log.csv` into `loss.png`; False without matplotlib.

    What goes wrong, such as a full disk, is warned of: no picture is worth the end of a run.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return False
    try:
        _draw(read_log(folder), folder / PLOT)
    except Exception as error:
        warnings.warn(f"{folder / PLOT} was not drawn: {error}", UserWarning, stacklevel=2)
    return True


def _draw(rows: list[dict[str, str]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="loss (nats per token)")
    curves = (("train_loss", "-", "training"), ("val_loss", "o-", "held out"))
    for column, style, label in curves:
        points = [(int(row["step"]), float(row[column])) for row in rows if row[column]]
        if points:
            axes.plot(*zip(*points, strict=True), style, label=label)
    if rows:
        axes.legend()
    with replacing(path) as (temporary,):
        figure.savefig(temporary, format="png")


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


@contextlib.contextmanager
def readers_may_leave() -> Iterator[None]:
    """Within the block, a reader of stdout or stderr that goes away (`| head`) is no error.

    What is printed then is lost, and so it is where a terminal hangs up, or the disk is full that
    the output goes to.
    """
    with (
        contextlib.redirect_stdout(cast(TextIO, _Unread(sys.stdout))),
        contextlib.redirect_stderr(cast(TextIO, _Unread(sys.stderr))),
    ):
        yield


class _Unread:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, call: Callable[..., object], *args: str) -> None:
        try:
            call(*args)
        except OSError:
            # Python keeps what it could not write, and tries again: let that go nowhere.
            with contextlib.suppress(OSError), Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def clock(seconds: float) -> str:
    """75 -> "1:15", 3675 -> "1:01:15"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
