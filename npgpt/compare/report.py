"""What `python -m npgpt.compare` says: tables of 100 columns, or one JSON object.

Leaves out computing anything but the sentences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from npgpt.compare.activations import GRAD
from npgpt.compare.differences import OK, Difference, LogitsDifference, first_beyond
from npgpt.compare.station_parts import what_makes

TokenText = Callable[[int], str | None]


class Comparison(NamedTuple):
    """Two implementations side by side."""

    model: str
    kind: str  # its `model_type`
    against: str
    dtype: str
    tolerance: float | None  # None: from rounding, station by station
    ids: list[int]
    target_ids: list[int] | None  # of an encoder-decoder
    stations: list[Difference]  # in the order of the forward pass; `loss` last
    gradients: list[Difference]  # in the order of the backward pass
    logits: LogitsDifference | None  # None where the other side has no logits
    missing: list[str]
    unknown: list[str]
    unread: list[str]

    @property
    def within(self) -> bool:
        """Whether every station and gradient is ok."""
        return first_beyond([*self.stations, *self.gradients]) is None


def as_text(comparison: Comparison, token_text: TokenText) -> str:
    """Everything for a reader: the tables, then the findings, then what was left out."""
    c, other = comparison, "hf" if comparison.against == "hf" else "file"
    blocks = [_title(c)]
    if c.stations:
        blocks.append(_table("station", c.stations, other))
    if c.gradients:
        worst_first = sorted(c.gradients, key=lambda row: row.share, reverse=True)
        rows = [row._replace(station=row.station.removeprefix(GRAD)) for row in worst_first]
        blocks.append(_table("gradient, worst first", rows, other))
    blocks.append(_findings(c))
    if c.logits is not None:
        blocks.append(_next_token(c, c.logits, other, token_text))
    for title, names in (
        ("not in the file", c.missing),
        ("in the file, but no station of this model", c.unknown),
        ("in the file, but compared only with --gradients", c.unread),
    ):
        if names:
            blocks.append(f"{title}:\n{_wrapped(names)}")
    return "\n\n".join(blocks)


def as_json(comparison: Comparison, token_text: TokenText) -> dict[str, Any]:
    """The same as an object; what JSON has no number for (NaN, infinity) is null."""
    c = comparison
    beyond, beyond_grad = first_beyond(c.stations), first_beyond(c.gradients)
    return {
        "model": c.model,
        "against": c.against,
        "dtype": c.dtype,
        "tolerance": c.tolerance,
        "ids": c.ids,
        "target_ids": c.target_ids,
        "within_tolerance": c.within,
        "first_beyond": beyond and beyond.station,
        "first_gradient_beyond": beyond_grad and beyond_grad.station,
        "stations": [_row_as_json(row) for row in c.stations],
        "gradients": [
            _row_as_json(row) for row in sorted(c.gradients, key=lambda r: r.share, reverse=True)
        ],
        "logits": c.logits and _logits_as_json(c.logits, token_text),
        "missing": c.missing,
        "unknown": c.unknown,
        "unread": c.unread,
    }


def _title(c: Comparison) -> str:
    tolerance = "what rounding explains" if c.tolerance is None else f"{c.tolerance:g}"
    tokens = f"{len(c.ids)} tokens"
    if c.target_ids is not None:
        tokens += f" and {len(c.target_ids)} of the target"
    return f"{c.model} ({c.dtype}) against {c.against}, {tokens}; tolerance: {tolerance}"


def _table(title: str, rows: Sequence[Difference], other: str) -> str:
    """One line for each difference, columns as wide as they need to be."""
    cells = [(title, "max |Δ|", "relative", "tolerance", "worst at", "npgpt", other, "")]
    cells += [
        (
            row.station,
            _number(row.max_abs),
            _number(row.relative),
            _number(row.tolerance),
            "(" + ", ".join(map(str, row.worst)) + ")",
            f"{row.ours:.3e}",
            f"{row.theirs:.3e}",
            row.verdict if row.verdict == OK else row.verdict.upper(),
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in (0, 4, 7) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )


def _findings(c: Comparison) -> str:
    sentences = []
    beyond = first_beyond(c.stations)
    if beyond is not None:
        at = c.stations.index(beyond)
        before = f"; {c.stations[at - 1].station} before it is ok" if at else ""
        sentences.append(f"first station beyond tolerance: {beyond.station}{before}")
        sentences.append(f"  made by: {what_makes(c.kind, beyond.station)}")
    elif c.stations:
        sentences.append(f"all {len(c.stations)} stations are within tolerance")
    if c.gradients:
        late = first_beyond(c.gradients)
        sentences.append(
            f"all {len(c.gradients)} gradients are within tolerance"
            if late is None
            else f"first gradient beyond tolerance, as the backward pass goes: {late.station}"
        )
    if c.logits is not None:
        sentences += _logits_sentences(c.logits)
    return "\n".join(sentences)


def _logits_sentences(logits: LogitsDifference) -> list[str]:
    parting = ""
    if logits.parting is not None:
        parting = (
            f"; first parting at position {logits.parting}, where npgpt's logits tell the two "
            f"tokens apart by {_number(logits.gap)}"
        )
    return [
        f"argmax: the same at {logits.agreeing} of {logits.positions} positions{parting}",
        f"KL divergence: mean {_number(logits.kl_mean)}, max {_number(logits.kl_max)} nats",
    ]


def _next_token(c: Comparison, logits: LogitsDifference, other: str, token_text: TokenText) -> str:
    at = "after" if c.kind in ("gpt2", "llama") else "at"
    lines = [f"likeliest {at} position {logits.positions - 1}:"]
    lines.append(f"     {'npgpt':<42}{other}")
    for place, pair in enumerate(zip(logits.ours, logits.theirs, strict=True), start=1):
        cells = [f"{p:<8.2g}  {i:<6} {_quoted(token_text(i))}" for i, p in pair]
        lines.append(f"  {place}  {cells[0]:<42}{cells[1]}".rstrip())
    return "\n".join(lines)


def _quoted(text: str | None) -> str:
    if text is None:
        return ""
    quoted = repr(text)
    return quoted if len(quoted) <= 24 else quoted[:23] + "…"


def _wrapped(names: Sequence[str]) -> str:
    import textwrap

    return textwrap.indent(textwrap.fill(", ".join(names), 98), "  ")


def _number(x: float) -> str:
    return "0" if x == 0 else f"{x:.1e}"


def _row_as_json(row: Difference) -> dict[str, Any]:
    return {key: _finite_or_none(value) for key, value in row._asdict().items()}


def _logits_as_json(logits: LogitsDifference, token_text: TokenText) -> dict[str, Any]:
    def tokens(likeliest: list[tuple[int, float]]) -> list[dict[str, Any]]:
        return [
            {"id": i, "token": token_text(i), "probability": _finite_or_none(p)}
            for i, p in likeliest
        ]

    numbers = {key: _finite_or_none(value) for key, value in logits._asdict().items()}
    return {**numbers, "ours": tokens(logits.ours), "theirs": tokens(logits.theirs)}


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
