"""What all commands share: UTF-8 streams, one sentence instead of a traceback, quiet endings."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npgpt.memory import keep_freed_memory

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

DEFAULT_MODEL = "weights/tales"  # ships with npgpt
DTYPES = {"float32": np.float32, "float64": np.float64}


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
            return EXIT_BAD_INPUT


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
            f"ids must be whole numbers separated by spaces or commas, but are {text!r}."
        ) from None


def _as_utf8(argument: Any) -> str:
    # Under a C locale, bytes above 127 arrive as surrogates; os.fsencode gives the bytes back.
    try:
        return os.fsencode(argument).decode("utf-8", errors="replace")
    except UnicodeEncodeError:
        return str(argument)


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
