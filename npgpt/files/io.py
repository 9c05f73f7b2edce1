"""Files that appear whole or not at all, and JSON in which no key stands twice."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

# Windows neither replaces nor removes a file that someone has open, as a virus scanner soon has.
WAITS = (0.05, 0.2, 0.5, 1.0)  # seconds before each further attempt


@contextlib.contextmanager
def replacing(*paths: Path, gone: Sequence[Path] = ()) -> Iterator[list[Path]]:
    """Yield a temporary file beside each path; they take their places once the block ends well.

    All of them are on the disk before the first is renamed, so that a full disk or a kill leaves
    what was there, and an exception leaves no temporary file behind. The files that are to be
    `gone` are removed right before the last rename. Of two writers the last one wins.

    Raises OSError, one sentence naming the first path, where a file cannot be written.
    """
    temporaries = [path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp") for path in paths]
    state = "what was there before is unchanged"
    try:
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
    finally:
        for temporary in temporaries:
            with contextlib.suppress(OSError):
                temporary.unlink()


def clear_litter(folder: Path) -> None:
    """Remove the temporary files of `replacing` that a killed process left in a folder."""
    for path in folder.glob(f".*.{'[0-9a-f]' * 8}.tmp"):
        path.unlink(missing_ok=True)


def path_text(name: str, value: Any) -> str:
    """A path that a caller gives, as text; ValueError with the argument's name for what is none."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or "\0" in text:
        raise ValueError(f"{name} must be a path or a name, but is {value!r:.60}.")
    if not text:
        raise ValueError(f"{name} is empty; give a path or a name.")
    return text


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with ~ as the home folder, which not every shell puts there; ~nobody stays."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  (pathlib's raises at ~nobody)


def parse_json(raw: bytes, where: str) -> Any:
    """The value of a JSON text; ValueError, naming `where`, if it is none or has a key twice."""
    try:
        return json.loads(raw, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not valid JSON ({error}).") from error


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
        raise ValueError(f"the key {twice!r} stands there twice")
    return table


def _flush_folder(folder: Path) -> None:
    """Make the renames themselves last, where the system can flush a folder (Windows cannot)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
