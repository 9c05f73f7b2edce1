"""What the examples print with: headings, matrices side by side, and checks.

A check prints a number as the article prints it and stops the script, with an AssertionError, where
the digits differ. A script that imports this answers `--help`, ends quietly at `| head` and at
Ctrl-C, and speaks Chinese or English: `--lang zh` or `--lang en`, otherwise as the locale says.
"""

from __future__ import annotations

import argparse
import importlib
import locale
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npgpt.cli import EXIT_INTERRUPTED, left, reader_has_gone, width

# Now, before anything is printed: a Ctrl-C while it is being set up is swallowed by Cython.
importlib.import_module("numpy.random")

WIDTH = 98
CHAPTERS = "〇一二三四五六七八九十"

if hasattr(sys.stdout, "reconfigure"):
    # Chinese names and √, whatever the locale; a reader that has gone away shows at the next line.
    sys.stdout.reconfigure(encoding="utf-8", line_buffering=True)


def language(argv: list[str]) -> str:
    """ "zh" or "en": what `--lang` says, which is taken out of `argv`, otherwise the locale."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    named = [os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG")]
    of_locale = next(filter(None, named), None) or locale.getlocale()[0] or "en"
    chinese = of_locale.lower().startswith(("zh", "chinese"))
    parser.add_argument("--lang", choices=("zh", "en"), default="zh" if chinese else "en")
    known, argv[:] = parser.parse_known_args(argv)
    return known.lang


def new_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser that says what the script does and lists `--lang`, which was read before."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--lang", choices=("zh", "en"), help="Chinese or English; default: locale")
    return parser


def without_options() -> None:
    """For a script that parses no arguments: answer `--help`, refuse what else it is given."""
    script = sys.modules["__main__"]
    path = Path(getattr(script, "__file__", None) or "none")
    if path.parent == Path(__file__).parent and "parse_args" not in path.read_text("utf-8"):
        new_parser(script.__doc__).parse_args()


arguments = sys.argv[1:]
LANGUAGE = language(arguments)
sys.argv[1:] = arguments
without_options()


def say(english: str, chinese: str) -> str:
    """The one of the two that this run speaks."""
    return chinese if LANGUAGE == "zh" else english


def end(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """What Python calls with an exception that nothing caught; quiet where `npgpt.cli.run` is."""
    if kind is KeyboardInterrupt or reader_has_gone(error):
        # Not sys.exit, which would write what is left to the closed pipe.
        os._exit(EXIT_INTERRUPTED if kind is KeyboardInterrupt else 0)
    sys.__excepthook__(kind, error, trace)


sys.excepthook = end


def heading(section: str, title: str) -> None:
    """A line that says which section of the article follows: 7.3, in Chinese 七.3."""
    line = f"── {say(section, in_chinese(section))} ── {title} "
    print(f"\n{line}{'─' * (WIDTH - width(line))}")


def in_chinese(section: str) -> str:
    """ "7.3 ②" -> "七.3 ②", "13" -> "十三", "3, 4" -> "三、四"; what has no number stays."""
    return re.sub(r"^\d+|, (?=\d)|(?<=, )\d+", numeral, section)


def numeral(found: re.Match[str]) -> str:
    """A chapter's number up to 19 in Chinese; between two of them a 、."""
    if found[0] == ", ":
        return "、"
    ten, one = divmod(int(found[0]), 10)
    return CHAPTERS[one] if not ten else "十" + CHAPTERS[one] * bool(one)


def check(what: str, value: float, printed: str, unit: str = "") -> None:
    """Print `value` with the digits of `printed`; AssertionError unless they are the same."""
    digits = len(printed.partition(".")[2])
    found = f"{value:{',' if ',' in printed else ''}.{digits}f}"
    if found != printed:
        raise AssertionError(f"{what}: {found} ({value!r}), but the article has {printed}.")
    print(f"  {left(what, 68)} {found:>15} {unit:<7} ✓")


def claim(what: str, true: bool | np.bool_) -> None:
    """Print a statement that has just been checked; AssertionError if it does not hold."""
    if not true:
        raise AssertionError(f"does not hold: {what}")
    print(f"  {left(what, 93)} ✓")


def refused(what: str, call: Callable[[], object]) -> None:
    """Print the sentence with which `call` refuses; AssertionError if it does not."""
    try:
        call()
    except ValueError as error:
        print(f"  {what}{say(': ', '：')}{str(error).strip()}")
    else:
        raise AssertionError(f"{what}: was not refused")


def same(got: np.ndarray, printed: Sequence[Any], digits: int = 2) -> None:
    """AssertionError unless `got`, rounded, is what the article prints."""
    if not np.array_equal(np.round(got, digits) + 0.0, np.array(printed)):
        raise AssertionError(f"{np.round(got, digits)} is not what the article prints: {printed}")


def matrices(
    *named: tuple[str, np.ndarray],
    rows: list[str] | None = None,
    digits: int = 2,
    feet: list[str] | None = None,
) -> None:
    """Print matrices of the same height side by side, each under its name.

    Args:
        named: name and matrix [T, n] each.
        rows: labels of the rows; None: none.
        digits: after the point, where a number is not whole.
        feet: a remark under each matrix.
    """
    labels = ["", *(rows or [""] * len(named[0][1])), ""]
    columns = [[left("  " + label, max(map(width, labels)) + 2) for label in labels]]
    for (name, matrix), foot in zip(named, feet or [""] * len(named), strict=True):
        lines = [name, *rows_of_numbers(matrix, digits), foot]
        columns.append([left(line, max(map(width, lines))) for line in lines])
    lines = ["    ".join(parts).rstrip() for parts in zip(*columns, strict=True)]
    print("\n".join(lines if any(feet or []) else lines[:-1]))


def rows_of_numbers(matrix: np.ndarray, digits: int) -> list[str]:
    """The rows of a matrix, points under points; a whole number goes without its point."""
    whole = np.isinf(matrix) | (matrix == np.round(matrix))
    behind = 0 if whole.all() else digits + 1
    cells = [
        [
            f"{value:.0f}".replace("inf", "∞") + " " * behind if is_whole else f"{value:.{digits}f}"
            for value, is_whole in zip(*pair, strict=True)
        ]
        for pair in zip(matrix + 0.0, whole, strict=True)
    ]
    cell = max(len(text) for row in cells for text in row)
    return ["  ".join(text.rjust(cell) for text in row) for row in cells]


def table(mask: np.ndarray) -> list[str]:
    """A boolean matrix as lines of ■ (True) and · (False)."""
    return [" ".join("■" if seen else "·" for seen in row) for row in mask]


def moved(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Which positions differ: [..., T, d] twice -> bool [T]."""
    return (before != after).any(axis=-1)
