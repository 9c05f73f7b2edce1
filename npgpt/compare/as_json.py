"""The report of `python -m npgpt.compare --json`, and `--list`: JSON for programs to read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from npgpt.compare.comparing import Comparison
from npgpt.compare.differences import Difference, LogitsDifference, first_beyond
from npgpt.compare.report import TokenText, verdict


def as_json(comparison: Comparison, token_text: TokenText) -> dict[str, Any]:
    """All that is reported; NaN and infinity, for which JSON has no number, are null."""
    c, asked = comparison, comparison.asked
    beyond, late = first_beyond(c.stations), first_beyond(c.backward)
    return {
        "model": asked.model,
        "against": asked.against,
        "dtype": asked.dtype,
        "local": asked.local,
        "tolerance": asked.tolerance,
        "ids": asked.ids.tolist(),
        "target_ids": None if asked.target_ids is None else asked.target_ids.tolist(),
        "within_tolerance": c.within,
        "verdict": verdict(c),
        "first_beyond": beyond and beyond.station,
        "first_gradient_beyond": late and late.station,
        "findings": [where._asdict() for where in c.ranges],
        "stations": [_row(row) for row in c.stations],
        "arriving": [_row(row) for row in c.arriving],
        "gradients": [_row(row) for row in c.gradients],
        "logits": c.logits and _logits(c.logits, token_text),
        "missing": c.missing,
        "unknown": c.unknown,
        "unread": c.unread,
    }


def listed(stations: Mapping[str, np.ndarray]) -> str:
    """Name, dtype and shape of every array, each on a line of one JSON object."""
    lines = [
        f"  {json.dumps(name)}: " + json.dumps({"dtype": array.dtype.name, "shape": [*array.shape]})
        for name, array in stations.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}"


def _row(row: Difference) -> dict[str, Any]:
    return {key: _finite_or_none(value) for key, value in row._asdict().items()}


def _logits(logits: LogitsDifference, token_text: TokenText) -> dict[str, Any]:
    def tokens(likeliest: list[tuple[int, float]]) -> list[dict[str, Any]]:
        return [
            {"id": i, "token": token_text(i), "probability": _finite_or_none(p)}
            for i, p in likeliest
        ]

    return {
        "positions": logits.positions,
        "agreeing": logits.agreeing,
        "parting": logits.first_disagreement,
        "gap": _finite_or_none(logits.gap),
        "kl_mean": _finite_or_none(logits.kl_mean),
        "kl_max": _finite_or_none(logits.kl_max),
        "ours": tokens(logits.ours),
        "theirs": tokens(logits.theirs),
    }


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
