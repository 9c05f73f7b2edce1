"""What all commands share: UTF-8 streams, one sentence instead of a traceback, quiet endings.

Tables, too, with columns of a terminal, where a Chinese character or an emoji takes two; those of
ambiguous width count as one.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

DEFAULT_MODEL = "weights/tales"  # ships with npgpt
GAP = "  "  # between two columns
DTYPES: dict[str, type[np.floating[Any]]] = {"float32": np.float32, "float64": np.float64}
# Parameters of glibc's mallopt, from its malloc.h.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3


def run(prog: str, main: Callable[[Sequence[str]], int], argv: Sequence[str] | None = None) -> int:
    """Call `main` with the arguments and turn what may go wrong into an exit code.

    Bad input (ValueError, OSError, ImportError): its sentence on stderr, exit 2. Ctrl-C: exit 130.
    A reader that has gone away (`| head`): quiet, exit 0. Text is UTF-8 whatever the locale.
    """
    keep_freed_memory()
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    arguments = [_as_utf8(a) for a in (sys.argv[1:] if argv is None else argv)]
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _say(f"{prog}: warning: {message}")
        try:
            code = main(arguments)
            sys.stdout.flush()
            return code
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except BrokenPipeError:
            # Python flushes stdout once more at exit; let that go nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except (ValueError, OSError, ImportError) as error:
            _say(f"{prog}: error: {error}")
        except MemoryError as error:
            _say(f"{prog}: error: the memory does not suffice ({error or 'none is left'}).")
        return EXIT_BAD_INPUT


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


def check_text_or_ids(text: str | None, ids: str | None, what: str = "text") -> None:
    """ValueError unless exactly one of the two is given."""
    if (text is None) == (ids is None):
        raise ValueError(f'give either a {what} ("-" reads it from stdin) or --ids.')


def text_or_stdin(given: str) -> str:
    """The argument itself, or all of stdin for "-"."""
    return sys.stdin.read() if given == "-" else given


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
    mallopt(M_MMAP_THRESHOLD, 2**31 - 1)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(M_TOP_PAD, 1 << 24)
    return True


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


def _as_utf8(argument: Any) -> str:
    # Under a C locale, bytes above 127 arrive as surrogates; os.fsencode gives the bytes back.
    try:
        return os.fsencode(argument).decode("utf-8", errors="replace")
    except UnicodeEncodeError:
        return str(argument)


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _width_of(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
