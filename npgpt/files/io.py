"""Files that appear whole or not at all, and JSON in which no key stands twice."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

MOST_DIGITS = 40  # tokenizer_config.json has 31 of them for "any length"; ids and sizes far less
MOST_LEVELS = 64


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
            temporary.replace(path)
            state = "some files are new and some are not: save again"
        for path in gone:
            path.unlink(missing_ok=True)
        last.replace(last_path)
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
