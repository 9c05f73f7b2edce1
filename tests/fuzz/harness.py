"""One case: a sound folder is copied, changed, read; and what must hold of the outcome.

Accepted is a refusal, a ValueError, OSError or ImportError in one sentence that names a file of the
folder (or, once the files are read, says what cannot be computed from them), or a result: arrays of
the shapes that they have by the file, finite unless a warning says which are not, equal to those of
the sound file where the change means nothing, and what the kind itself asks for. Warnings name the
file too. No case may take more than `SECONDS` of processor time or `MEGABYTES`.
"""

from __future__ import annotations

import contextlib
import io
import random
import shutil
import signal
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SECONDS, MEGABYTES = 2.0, 50  # no case of those that are right comes near
LONGEST = 700  # characters of a sentence
REFUSALS = (ValueError, OSError, ImportError)
Found = Mapping[str, Any]  # name -> array, or anything else that can be compared


class Change(NamedTuple):
    """What was done to a file."""

    what: str
    keeps: bool = False  # the results: a change that means nothing
    refused: bool = False  # must it be, as a name that stands there twice
    part: str = ""  # of the file, for the kind's own check


class Kind(NamedTuple):
    """A kind of file: how to write a sound one, break it and use it."""

    name: str
    make: Callable[[Path], Any]  # writes the sound files into a folder
    change: Callable[[random.Random, Path], Change]
    load: Callable[[Path], Any]
    run: Callable[[Any], Found]  # what was loaded, in use
    check: Callable[[Found, Found, Change, Path], None] = lambda *_: None
    finite: bool = True  # whether what is computed has to be


class Used(NamedTuple):
    """What reading and using a folder gave."""

    refusal: str | None
    at_load: bool  # whether the refusal came while the files were read
    warnings: list[str]
    found: Found


class Outcome(NamedTuple):
    """What came of a case."""

    refusal: str | None
    failure: str | None
    seconds: float
    megabytes: float


class Sound(NamedTuple):
    """The sound folder of a kind, and what comes of it."""

    folder: Path
    found: Found


def make_sound(kind: Kind, root: Path) -> Sound:
    """The sound folder, which has to load without a refusal."""
    folder = root / kind.name
    folder.mkdir()
    with quiet():
        kind.make(folder)
        return Sound(folder, kind.run(kind.load(folder)))


def run_case(kind: Kind, sound: Sound, number: int) -> tuple[Change, Outcome]:
    """Change a copy of the sound folder as this number says, and read it."""
    folder = sound.folder.with_name("case")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound.folder, folder)
    with quiet():
        change = kind.change(random.Random(number), folder)
    tracemalloc.start()
    start, failure, used = time.process_time(), None, None
    try:
        with time_limit(5 * SECONDS):
            used = _use(kind, folder)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # Rust's panics are no Exceptions
        failure = f"{type(error).__name__}: {error!s:.200}"
    seconds, megabytes = time.process_time() - start, tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    if used is not None:
        try:
            _judge(kind, sound.found, change, folder, used)
        except Exception as error:
            failure = f"{type(error).__name__}: {error!s:.200}"
    if failure is None and seconds > SECONDS:
        failure = f"took {seconds:.1f} s"
    if failure is None and megabytes > MEGABYTES:
        failure = f"took {megabytes:.0f} MB"
    return change, Outcome(used and used.refusal, failure, seconds, megabytes)


def _use(kind: Kind, folder: Path) -> Used:
    """Load and run; whatever is no refusal goes on upwards."""
    loaded = None
    with quiet() as said:
        try:
            loaded = kind.load(folder)
            at_load = [str(warning.message) for warning in said]
            found = kind.run(loaded)
        except REFUSALS as error:
            return Used(str(error), loaded is None, [], {})
        return Used(None, False, at_load, found)


def _judge(kind: Kind, sound: Found, change: Change, folder: Path, used: Used) -> None:
    """AssertionError where the outcome is wrong."""
    if used.refusal is not None:
        _check_sentence(used.refusal, folder if used.at_load else None)
    assert used.at_load or not change.refused, "was taken, but must be refused"
    for text in used.warnings:
        _check_sentence(text, folder)
    if used.refusal is not None:
        return
    warned = any("NaN or infinite" in text for text in used.warnings)
    for name, value in used.found.items() if kind.finite and not warned else ():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert np.isfinite(value).all(), f"{name} is not finite, and no warning says so"
    if change.keeps:
        assert used.found.keys() == sound.keys()
        for name, value in sound.items():
            np.testing.assert_array_equal(used.found[name], value, name)
    kind.check(used.found, sound, change, folder)


def _check_sentence(text: str, folder: Path | None) -> None:
    assert "\n" not in text, f"more than one line: {text!r:.300}"
    assert len(text) < LONGEST, f"{len(text)} characters: {text!r:.300}"
    if folder is not None:
        files = [path.name for path in folder.iterdir()]
        named = folder.name in text or any(name in text for name in files)
        assert named, f"names no file: {text!r:.300}"


@contextlib.contextmanager
def quiet() -> Iterator[list[warnings.WarningMessage]]:
    """Without output; warnings are collected, those of NumPy's arithmetic are not made."""
    out, err = (
        to(io.StringIO()) for to in (contextlib.redirect_stdout, contextlib.redirect_stderr)
    )
    with warnings.catch_warnings(record=True) as said, np.errstate(all="ignore"), out, err:
        warnings.simplefilter("always")
        yield said


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError once so much processor time is used, where the system can."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: object) -> None:
        raise AssertionError(f"still not done after {seconds} s")

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
