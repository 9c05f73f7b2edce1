"""Two implementations side by side: every station that both have, and where what is wrong began.

With `local`, npgpt computes each station from the other side's stations before it, and each
gradient from the other side's that arrives. Every row then stands for itself: two faults are two
rows, and what is right in between is ok.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from npgpt.compare.activations import (
    GRAD,
    Stations,
    collect_in_other_precision,
    collect_stations,
    measure_rounding,
    seen,
)
from npgpt.compare.differences import (
    HALF_PRECISION,
    OK,
    Difference,
    LogitsDifference,
    allowed_by_rounding,
    difference,
    first_beyond,
    logits_difference,
    measured_by,
    norm_of,
)
from npgpt.compare.dump import Dump, match_stations, misshapen
from npgpt.compare.fits import Known, explained
from npgpt.compare.wiring import Range, Wiring, find_range, wiring_of

STORINGS = 5  # times what half precision does to a station by storing those it is computed from
MOST_KEPT = 6  # wrong stations whose arrays are kept

Arrays = Mapping[str, np.ndarray]


class Question(NamedTuple):
    """What is to be compared, and how."""

    model: str
    model_type: str
    against: str
    dtype: str
    tolerance: float | None  # None: from rounding, station by station
    ids: np.ndarray
    target_ids: np.ndarray | None  # of an encoder-decoder
    gradients: bool
    local: bool
    maps: bool = False  # whether Δ of the first wrong stations is kept, to be drawn


class Comparison(NamedTuple):
    """The answer."""

    asked: Question
    stations: list[Difference]  # in the order of the forward pass; `loss` last
    backward: list[Difference]  # gradients, in the order of the backward pass
    parameters: set[str]  # which of them are those of parameters
    ranges: list[Range]  # of what is wrong first, or with `local` of all that is wrong
    logits: LogitsDifference | None  # None where the other side has no logits
    missing: list[str]
    unknown: list[str]
    unread: list[str]
    apart: dict[str, np.ndarray]  # other - npgpt, of the first wrong ones, if asked for

    @property
    def rows(self) -> list[Difference]:
        """All of them."""
        return [*self.stations, *self.backward]

    @property
    def within(self) -> bool:
        """Whether every station and gradient is ok."""
        return first_beyond(self.rows) is None

    @property
    def arriving(self) -> list[Difference]:
        """The gradients at stations, in the order of the backward pass."""
        return [row for row in self.backward if row.station not in self.parameters]

    @property
    def gradients(self) -> list[Difference]:
        """The parameters' gradients, those that use most of their tolerance in front."""
        rows = [row for row in self.backward if row.station in self.parameters]
        return sorted(rows, key=lambda row: row.share, reverse=True)


class Measured(NamedTuple):
    """What npgpt computes, and how much of it is rounding."""

    ours: Stations
    rounding: dict[str, float]  # see `measure_rounding`; empty with a tolerance
    storing: dict[str, float]  # the same, of half precision in the stations that are given


def compare(model: Any, dump: Dump, asked: Question) -> Comparison:
    """Every station that both sides have.

    Raises ValueError where the dump does not fit, see `match_stations`.
    """
    inputs, wiring = (asked.ids, asked.target_ids), wiring_of(model)
    if asked.local:
        plain = collect_stations(model, *inputs, gradients=False)
        shaped = plain | (_like_gradients(wiring, plain, model) if asked.gradients else {})
        if asked.gradients and misshapen(shaped, dump):  # what is refused is held against numbers
            shaped = collect_stations(model, *inputs, gradients=True)
        matched = match_stations(shaped, dump, model.params, asked.against)
        logits = plain.get("logits")
        measured = _measure(model, asked, dump.precision, matched.arrays)
    else:
        measured = _measure(model, asked, dump.precision)
        matched = match_stations(measured.ours, dump, model.params, asked.against)
        logits = measured.ours.get("logits")
    rows, apart = _compared(measured, dump.precision, matched.arrays, asked, wiring, model.params)
    ranges = _ranges(wiring, [*measured.ours], rows, local=asked.local)
    by_step = rows
    if ranges and not asked.local:
        measured.ours.clear()  # room for others
        measured, by_step = _by_step(model, asked, dump.precision, matched.arrays, ranges)
    ranges = explained(Known(model, *inputs, measured.ours, by_step, matched.arrays), ranges)
    theirs = matched.arrays.get("logits")
    return Comparison(
        asked,
        stations=[row for name, row in rows.items() if not name.startswith(GRAD)],
        backward=[row for name, row in rows.items() if name.startswith(GRAD)],
        parameters={GRAD + name for name in model.params},
        ranges=ranges,
        logits=None if theirs is None or logits is None else logits_difference(logits, theirs),
        missing=matched.missing,
        unknown=matched.unknown,
        unread=matched.unread,
        apart=apart,
    )


def _by_step(
    model: Any,
    asked: Question,
    precision: Mapping[str, str],
    theirs: Arrays,
    ranges: Sequence[Range],
) -> tuple[Measured, dict[str, Difference]]:
    """What `local` would have measured, and its rows, as far as it concerns these ranges."""
    backward = any(where.station.startswith(("loss", GRAD)) for where in ranges)
    asked = asked._replace(gradients=backward, local=True, maps=False)
    measured = _measure(model, asked, precision, theirs)
    return measured, _compared(measured, precision, theirs, asked, wiring_of(model), model.params)[
        0
    ]


def _like_gradients(wiring: Wiring, stations: Stations, model: Any) -> Stations:
    """Under the names of loss and gradients something of the same shape."""
    like = {**stations, **model.params, "loss": np.zeros(())}
    return {"loss": like["loss"]} | {
        name: like[name.removeprefix(GRAD)] for name in wiring.reads if name.startswith(GRAD)
    }


def in_order(wiring: Wiring, names: Sequence[str], params: Iterable[str]) -> list[str]:
    """All names in the order of the pass: a parameter's gradient behind the one that it needs."""
    place = {name: float(at) for at, name in enumerate(names)}
    params = [GRAD + name for name in params]
    for at, param in enumerate(params, start=1):
        needed = [place.get(name, len(names)) for name in wiring.reads.get(param, ())]
        place[param] = max(needed, default=len(names)) + 1 - at / (len(params) + 1)
    return sorted(names, key=place.__getitem__)


def _measure(
    model: Any, asked: Question, precision: Mapping[str, str], given: Arrays | None = None
) -> Measured:
    """npgpt's stations. The other precision comes first: its parameters are gone by then."""
    inputs, gradients = (asked.ids, asked.target_ids), asked.gradients
    if asked.tolerance is not None:
        ours = collect_stations(model, *inputs, gradients=gradients, given=given)
        return Measured(ours, {}, {})
    moved = collect_in_other_precision(model, *inputs, gradients=gradients, given=given)
    ours = collect_stations(model, *inputs, gradients=gradients, given=given)
    rounding, storing = measure_rounding(moved, ours), dict[str, float]()
    del moved
    if given is not None and any(precision[name] in HALF_PRECISION for name in given):
        nudged = {name: _nudged(array, precision[name]) for name, array in given.items()}
        moved = collect_stations(model, *inputs, gradients=gradients, given=nudged)
        storing = measure_rounding(moved, ours)
    return Measured(ours, rounding, storing)


def _nudged(array: np.ndarray, precision: str) -> np.ndarray:
    """The array with every number moved by what storing it may have done."""
    if precision not in HALF_PRECISION:
        return array
    unit, smallest = HALF_PRECISION[precision]
    steps = np.random.default_rng(0).uniform(-1, 1, array.shape)
    with np.errstate(invalid="ignore"):  # masked scores, in whose place others come in any case
        moved: np.ndarray = array + (unit * np.abs(array) + smallest) * steps
    return moved


def _compared(
    measured: Measured,
    precision: Mapping[str, str],
    theirs: Arrays,
    asked: Question,
    wiring: Wiring,
    params: Iterable[str],
) -> tuple[dict[str, Difference], dict[str, np.ndarray]]:
    """A row for each name that both have, in the order of the pass; Δ of the first wrong ones."""
    ours, rows, apart = measured.ours, dict[str, Difference](), dict[str, np.ndarray]()
    for name in in_order(wiring, [*ours], params):
        if name not in theirs:
            continue
        a, b = seen(name, ours[name], ours), seen(name, theirs[name], ours)
        base = measured_by(name)
        size = norm_of(a if base == name else ours[base])
        if asked.tolerance is None:
            moved = max(measured.rounding[name], measured.rounding[base])
            allowed = allowed_by_rounding(name, a, moved, precision[name], size)
            allowed += STORINGS * measured.storing.get(name, 0.0)
        else:
            allowed = asked.tolerance * size
        rows[name] = difference(name, a, b, allowed=allowed, size=size)
        if asked.maps and rows[name].verdict != OK and len(apart) < MOST_KEPT:
            apart[name] = np.asarray(b, np.float64) - a
    return rows, apart


def _ranges(
    wiring: Wiring, names: Sequence[str], rows: Mapping[str, Difference], *, local: bool
) -> list[Range]:
    """Where each fault is; without `local` the first, as all others may follow from it."""
    ok = [name for name, row in rows.items() if row.verdict == OK]
    ranges: list[Range] = []
    for name, row in rows.items():
        if row.verdict != OK and (local or not ranges):
            known: Any = {"order": names, "there": rows, "ok": ok, "wrong": ranges}
            ranges.append(find_range(wiring, name, local=local, **known))
    return ranges
