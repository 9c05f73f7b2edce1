"""JSON in which no key may stand twice. Leaves out everything else: `json` does it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any


def parse_json(raw: bytes, where: str) -> Any:
    """JSON in which no key stands twice; else ValueError, naming `where`."""
    try:
        return json.loads(raw, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not valid JSON ({error}).") from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice!r} stands there twice")
    return table
