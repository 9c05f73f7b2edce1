"""Files that appear whole or not at all, locked folders, JSON in which no key stands twice."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

LOCK = ".lock"  # in a folder that is held
NO_LOCK = (OSError, NotImplementedError)  # another process has it, or this disk has no locks
# Windows neither replaces nor removes a file that someone has open, as a virus scanner soon has.
WAITS = (0.05, 0.2, 0.5, 1.0)  # seconds before each further attempt
MOST_DIGITS = 40  # tokenizer_config.json has 31 of them for "any length"; ids and sizes far less
MOST_LEVELS = 64


@contextlib.contextmanager
def replacing(*paths: Path, gone: Sequence[Path] = ()) -> Iterator[list[Path]]:
    """Yield a temporary for each path, all of one folder; they take their places at the end.

    All of them are on the disk before the first is renamed, so that a full disk or a kill leaves
    what was there, and an exception leaves no temporary behind. What a kill leaves, the next call
    in this folder removes. The files that are to be `gone` are removed right before the last
    rename. Of two writers the last one wins.

    Raises OSError, one sentence naming the first path, where a file cannot be written.
    """
    state = "what was there before is unchanged"
    try:
        with _temporary_folder(paths[0].parent) as folder:
            temporaries = [folder / path.name for path in paths]
            yield temporaries
            for temporary in temporaries:
                with temporary.open("r+b") as file:
                    os.fsync(file.fileno())
            *pairs, (last, last_path) = zip(temporaries, paths, strict=True)
            for temporary, path in pairs:
                _patiently(temporary.replace, path)
                state = "some files are new and some are not: save again"
            for path in gone:
                _patiently(path.unlink, True)  # whether or not it is there
            _patiently(last.replace, last_path)
            _flush_folder(paths[0].parent)
    except OSError as error:
        raise OSError(
            f"{paths[0]} could not be written ({error.strerror or error}); {state}."
        ) from error


@contextlib.contextmanager
def _temporary_folder(beside: Path) -> Iterator[Path]:
    """A folder for what one write has not finished; those of killed writers are removed.

    Its lock says that its writer lives. It is a folder, because the safetensors package, too,
    writes a hidden file beside its target first.
    """
    from filelock import FileLock

    for left in beside.glob(".npgpt-*.tmp"):
        with contextlib.suppress(*NO_LOCK):
            with FileLock(left / LOCK, timeout=0):
                shutil.rmtree(left, ignore_errors=True)
            shutil.rmtree(left, ignore_errors=True)  # Windows kept the lock, a file that was open
    for last in (False, False, True):
        folder = Path(tempfile.mkdtemp(".tmp", ".npgpt-", beside))
        lock = FileLock(folder / LOCK, timeout=0)
        with contextlib.suppress(*NO_LOCK):
            lock.acquire()
            if (folder / LOCK).exists():  # else another writer took the new folder for an old one
                break
        if not last:
            shutil.rmtree(folder, ignore_errors=True)
    try:
        yield folder
    finally:
        lock.release()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which the system takes back when the process ends or is killed.

    Its file stays: whoever removed it could take it from a process that is just opening it.

    Raises ValueError, one sentence, if another process holds it.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(
            f"another process is at work in {folder}: wait until it ends, or choose another folder."
        ) from None
    except NotImplementedError:
        warnings.warn(
            f"{folder} cannot be locked on this disk; let no other process work in it.",
            UserWarning,
            stacklevel=3,
        )
    try:
        yield
    finally:
        lock.release()


def path_text(name: str, value: Any) -> str:
    """A path that a caller gives, as text; ValueError with the argument's name for what is none."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or "\0" in text:
        raise ValueError(f"{name} must be a path or a name, but is {value!r:.60}.")
    if not text:
        raise ValueError(f"{name} is empty; give a path or a name.")
    return text


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with ~ as the home folder, which not every shell puts there; ~nobody stays.

    Raises ValueError for an empty one, as an unset variable of the shell gives.
    """
    if not os.fspath(path):
        raise ValueError("a path is empty; give the path of a file or a folder.")
    return Path(os.path.expanduser(path))  # noqa: PTH111  (pathlib's raises at ~nobody)


def parse_json(raw: bytes, where: str) -> Any:
    """The value of a JSON text.

    An integer of more than `MOST_DIGITS` becomes a float, so that whoever reads it refuses it by
    its name. Raises ValueError, naming `where`, for a text that is no JSON, has a key twice, or is
    nested deeper than `MOST_LEVELS`.
    """
    try:
        value = json.loads(raw, object_pairs_hook=_without_duplicates, parse_int=_integer)
        _check_levels(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not valid JSON ({error}).") from error
    return value


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= MOST_DIGITS else float(digits)


def _check_levels(value: Any) -> None:
    """Level by level, since whoever calls itself for each level is what deep nesting ends."""
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [
            child
            for each in level
            if isinstance(each, (dict, list))
            for child in (each.values() if isinstance(each, dict) else each)
        ]
    if any(isinstance(each, (dict, list)) for each in level):
        raise ValueError(f"its values lie more than {MOST_LEVELS} deep in each other")


def _patiently(call: Callable[..., object], *args: object) -> None:
    for seconds in WAITS:
        with contextlib.suppress(PermissionError):
            call(*args)
            return
        time.sleep(seconds)
    call(*args)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice!r:.80} stands there twice")
    return table


def _flush_folder(folder: Path) -> None:
    """Make the renames themselves last, where the system can flush a folder (Windows cannot)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
