"""What all commands share: UTF-8 texts, one sentence instead of a traceback, quiet endings.

What a file says may be shown on a terminal, which must not obey it: see `escaped`.

Tables, too, with columns of a terminal, where a Chinese character or an emoji takes two; those of
ambiguous width count as one.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import ctypes
import errno
import io
import os
import signal
import sys
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

DEFAULT_MODEL = "weights/tales"  # ships with npgpt
GAP = "  "  # between two columns
DTYPES: dict[str, type[np.floating[Any]]] = {"float32": np.float32, "float64": np.float64}
# What a terminal obeys instead of showing it: C0 but tab and line end, DEL, C1; and the characters
# that turn the direction of what is written after them. As in JSON, which so stays JSON.
CONTROLS = {*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
COLOURS = {"red": 31, "green": 32}
ESCAPES = {code: f"\\u{code:04x}" for code in CONTROLS - {ord("\t"), ord("\n")}}
# Parameters of glibc's mallopt, from its malloc.h.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3


def run(prog: str, main: Callable[[Sequence[str]], int], argv: Sequence[str] | None = None) -> int:
    """Call `main` with the arguments and turn what may go wrong into an exit code.

    Bad input (ValueError, OSError, ImportError): its sentence on stderr, exit 2. Ctrl-C: exit 130.
    A reader that has gone away (`| head`): quiet, exit 0. Output is UTF-8 whatever the locale, and
    `escaped` where it goes to a terminal.
    """
    keep_freed_memory()
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    arguments = sys.argv[1:] if argv is None else argv
    showwarning = warnings.showwarning  # free-threaded Python's catch_warnings leaves it alone
    with (
        warnings.catch_warnings(),
        np.errstate(invalid="ignore"),  # inf - inf: whoever read the weights has said more
        contextlib.redirect_stdout(_safe(sys.stdout)),
        contextlib.redirect_stderr(_safe(sys.stderr, start="\r")),  # where a progress bar begins
    ):
        warnings.showwarning = lambda message, *_, **__: _say(f"{prog}: warning: {message}")
        try:
            if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # by `npgpt/__init__.py`
                signal.signal(signal.SIGINT, signal.default_int_handler)
            code = main(arguments)
            sys.stdout.flush()
            return code
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except (ValueError, OSError, ImportError) as error:
            if reader_has_gone(error):
                # Python flushes stdout once more at exit; let that go nowhere.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return 0
            _say(f"{prog}: error: {error}")
            return EXIT_BAD_INPUT
        except MemoryError as error:
            _say(f"{prog}: error: the memory does not suffice ({error or 'none is left'}).")
            return EXIT_BAD_INPUT
        finally:
            warnings.showwarning = showwarning


def reader_has_gone(error: BaseException) -> bool:
    """Whether what is printed has no reader any more, as at `| head`."""
    if isinstance(error, BrokenPipeError):
        return True
    # Windows calls it an invalid argument (cpython#79935), as it does a path, which it then names.
    invalid = isinstance(error, OSError) and error.errno == errno.EINVAL and error.filename is None
    return invalid and sys.platform == "win32"


def new_parser(prog: str, description: str, **more: Any) -> argparse.ArgumentParser:
    """A command's parser; `more` as for `argparse.ArgumentParser`."""
    return argparse.ArgumentParser(prog=f"python -m {prog}", description=description, **more)


def add_model(
    parser: argparse.ArgumentParser,
    help: str = "a folder, weights/NAME, a hub id, a .gguf file, or smollm2 (%(default)s)",
    default: str | None = DEFAULT_MODEL,
) -> None:
    """`--model`, `--revision` and `--dtype`; without a default the model must be named."""
    add = parser.add_argument
    add("--model", help=help, default=default, required=default is None)
    add("--revision", help="branch, tag or commit on the hub")
    add("--dtype", choices=DTYPES, default="float32")


def add_text(parser: argparse.ArgumentParser, help: str, name: str = "text") -> None:
    """The text that a command reads, which may be left out."""
    help += '; "-" reads stdin'
    parser.add_argument(name, nargs="?", type=text, metavar=name.upper(), help=help)


def check_text_or_ids(text: str | None, ids: str | None, what: str = "text") -> None:
    """ValueError unless exactly one of the two is given."""
    if (text is None) == (ids is None):
        raise ValueError(f'give either a {what} ("-" reads it from stdin) or --ids.')


def text(argument: str) -> str:
    """`type` of an argument that is a text: as the locale has it, or else UTF-8.

    A path stays as it is: what the locale cannot read of it goes back to the system as it came.
    """
    with contextlib.suppress(UnicodeEncodeError):
        argument.encode()  # what the locale could not read is there as lone surrogates
        return argument
    try:
        return os.fsencode(argument).decode()
    except UnicodeError:
        raise argparse.ArgumentTypeError(
            f"{argument!r} is not {sys.getfilesystemencoding()}, nor UTF-8: set the locale to what "
            "the terminal writes, or convert it."
        ) from None


def text_or_stdin(given: str) -> str:
    """The argument itself, or all of stdin for "-".

    That is UTF-8, as files are whatever the locale, with or without a byte order mark; else what
    the locale says, as `echo` writes on a Chinese Windows.

    Raises ValueError for bytes that are neither.
    """
    if given != "-":
        return given
    if sys.stdin is None:
        raise ValueError('stdin is closed, so there is nothing to read for "-".')
    raw = sys.stdin.buffer.read().removeprefix(codecs.BOM_UTF8)
    encodings = dict.fromkeys(("utf-8", sys.stdin.encoding.lower()))
    for encoding in encodings:
        with contextlib.suppress(UnicodeDecodeError):
            found = io.TextIOWrapper(io.BytesIO(raw), encoding).read()  # with \r\n made \n
            if encoding != "utf-8":
                warnings.warn(f"stdin is not UTF-8: read as {encoding}.", stacklevel=2)
            return found
    raise ValueError(f"stdin is not {', nor '.join(encodings)}: convert it to UTF-8.")


def parse_ids(text: str) -> list[int]:
    """Token ids from "464 3797" or "464,3797" or "[464, 3797]".

    Raises:
        ValueError: something in it is no whole number.
    """
    words = text.replace(",", " ").strip().removeprefix("[").removesuffix("]").split()
    try:
        return [int(word) for word in words]
    except ValueError:
        raise ValueError(
            f"ids must be whole numbers separated by spaces or commas, but are {text!r:.60}."
        ) from None


def keep_freed_memory() -> bool:
    """Keep freed memory for the next array, instead of handing it back to the system each time.

    NumPy allocates an array for every result. From a few hundred kilobytes on, the C library of
    Linux asks the system for fresh pages each time, and the system zeroes them; using kept pages
    again saved a quarter of a training step of GPT-2 small. The setting is for the whole process,
    so a library leaves it to the program.

    Returns:
        Whether there was a C library that could be told.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # glibc before 2.35 takes no more than 32 MiB, and would still not choose for itself any more.
    if not (mallopt(M_MMAP_THRESHOLD, 2**31 - 1) or mallopt(M_MMAP_THRESHOLD, 1 << 25)):
        return False
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(M_TOP_PAD, 1 << 24)
    return True


def escaped(text: str) -> str:
    r"""The text with what a terminal would obey as \u001b and the like; lines and tabs stay."""
    return text.translate(ESCAPES)


class _Terminal:
    """A terminal's stream whose `write` escapes, but for the `start` of what is written."""

    def __init__(self, stream: TextIO, start: str) -> None:
        self._stream, self._start = stream, start

    def write(self, text: str) -> int:
        start = self._start if text.startswith(self._start) else ""
        self._stream.write(start + escaped(text.removeprefix(start)))
        return len(text)

    def paint(self, text: str, colour: str) -> None:
        """`write`, in a colour."""
        self._stream.write(f"\x1b[{COLOURS[colour]}m{escaped(text)}\x1b[0m")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def print_line(line: str, colour: str | None = None) -> None:
    """Print a line, in a colour on a terminal that has them; see no-color.org."""
    painted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if sys.platform == "win32" and "WT_SESSION" not in os.environ:
        painted = False  # the old console shows the codes
    if painted and colour is not None and isinstance(sys.stdout, _Terminal):
        sys.stdout.paint(line, colour)
        line = ""
    print(line)


def _safe(stream: TextIO | None, start: str = "") -> Any:
    return stream if stream is None or not stream.isatty() else _Terminal(stream, start)


def width(text: str) -> int:
    """Columns that a text takes: wide characters 2, combining marks and the like 0, others 1."""
    return sum(map(_width_of, text))


def cut(text: str, columns: int) -> str:
    """The text if it fits, otherwise its beginning and an ellipsis, at most `columns` wide."""
    if width(text) <= columns:
        return text
    kept, used = "", 0
    for char in text:
        used += _width_of(char)
        if used > columns - 1:
            break
        kept += char
    return kept + "…"


def left(text: str, columns: int) -> str:
    """Padded with spaces behind, to at least `columns`."""
    return text + " " * (columns - width(text))


def right(text: str, columns: int) -> str:
    """Padded with spaces in front, to at least `columns`."""
    return " " * (columns - width(text)) + text


def table(rows: Sequence[Sequence[str]], align: str, gap: str = GAP) -> str:
    """Lines with columns as wide as they need to be; `align` has an l or r for each column."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    pad = [left if side == "l" else right for side in align]
    return "\n".join(
        gap.join(p(cell, w) for p, cell, w in zip(pad, row, widths, strict=True)).rstrip()
        for row in rows
    )


def wrapped(text: str, columns: int) -> str:
    """The text in lines of at most so many columns, cut at spaces."""
    return "\n".join(" ".join(line) for line in filled(text.split(), columns, gap=1))


def filled(words: Sequence[str], columns: int, gap: int = 2) -> list[list[str]]:
    """Words in lines of at most so many columns, `gap` between two."""
    lines: list[list[str]] = [[]]
    used = -gap
    for word in words:
        used += gap + width(word)
        if used > columns and lines[-1]:
            lines.append([])
            used = width(word)
        lines[-1].append(word)
    return lines


def _nowhere() -> TextIO:
    """In place of a stream that is closed (`>&-`)."""
    return Path(os.devnull).open("w")


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _width_of(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
