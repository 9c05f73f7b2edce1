"""Which known fault makes exactly what the other side has: a station that is wrong, or misshapen.

Each hypothesis is a pass like that of `--local`, so it is computed from the other side's own
stations as far as they are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from npgpt.compare.activations import GRAD, Stations, collect_stations, seen
from npgpt.compare.differences import BEYOND, Difference, measured_by, norm_of
from npgpt.compare.hypotheses import hypotheses_of
from npgpt.compare.layouts import layouts
from npgpt.compare.subject import Hypothesis
from npgpt.compare.wiring import Range

CLOSER = 10  # times as close as what is right has to be what fits

Arrays = Mapping[str, np.ndarray]


class Known(NamedTuple):
    """What hypotheses are held against."""

    model: Any
    ids: np.ndarray
    target_ids: np.ndarray | None
    ours: Stations  # each computed from the other side's stations before it
    rows: Mapping[str, Difference]  # how far those are from the other side's
    theirs: Arrays


def explained(known: Known, ranges: Sequence[Range]) -> list[Range]:
    """The ranges, each with the hypotheses that fit."""
    open_ones = {
        where.station: where for where in ranges if known.rows[where.station].verdict == BEYOND
    }
    found: dict[str, set[str]] = {}  # the stations that a sentence explains
    for name in open_ones:
        for says in _laid_out(known, name):
            found.setdefault(says, set()).add(name)
    asked = known.model, known.ids, known.target_ids, known.theirs
    for h in hypotheses_of(*asked) if open_ones else ():
        names = [n for n, where in open_ones.items() if {n, *where.within} & {*h.touches}]
        found[h.says] = found.get(h.says, set()) | _fitting(known, h, names)
    best = [says for says, names in found.items() if not any(names < o for o in found.values())]
    return [
        where._replace(fits=tuple(says for says in best if where.station in found[says]))
        for where in ranges
    ]


def _fitting(known: Known, h: Hypothesis, names: Sequence[str]) -> set[str]:
    """Those of the names whose arrays the hypothesis makes.

    A gradient is tried twice: with the stations that the other side did not show as the hypothesis
    makes them, and as they should be, for a fault of the backward pass alone.
    """
    right = {n: a for n, a in known.ours.items() if not n.startswith(GRAD) and n != "loss"}
    hidden = {*right} - {*known.theirs}
    backward = [name for name in names if name.startswith(GRAD) and hidden]
    found = set()
    for given, asked in ((known.theirs, names), (_Over(known.theirs, right), backward)):
        if asked := [name for name in asked if name not in found]:
            made = _made(known, h, given, asked)
            found |= {name for name in asked if fits(known, name, made[name])}
    return found


def _made(known: Known, h: Hypothesis, given: Arrays, names: Sequence[str]) -> Stations:
    gradients = any(name == "loss" or name.startswith(GRAD) for name in names)
    with np.errstate(all="ignore"):
        return collect_stations(
            h.model,
            known.ids,
            known.target_ids,
            gradients=gradients,
            given=given,
            targets=h.targets,
            edit=h.edit,
        )


class _Over(Mapping[str, np.ndarray]):
    """What the other side has, or else what npgpt has; read when it is asked for."""

    def __init__(self, theirs: Arrays, ours: Arrays):
        self._theirs, self._ours = theirs, ours

    def __getitem__(self, name: str) -> np.ndarray:
        return self._theirs[name] if name in self._theirs else self._ours[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._ours), **dict.fromkeys(self._theirs)})

    def __len__(self) -> int:
        return len({*self._ours, *self._theirs})


def fits(known: Known, name: str, made: np.ndarray) -> bool:
    """Whether rounding explains what is left, and npgpt's own array is much farther away."""
    measure = known.ours[measured_by(name)]
    ours, theirs, made, measure = (
        seen(name, array, known.ours)
        for array in (known.ours[name], known.theirs[name], made, measure)
    )
    with np.errstate(all="ignore"):
        size, left = norm_of(ours), norm_of(np.subtract(theirs, made, dtype=np.float64))
        usual = norm_of(np.subtract(theirs, ours, dtype=np.float64))
        allowed = known.rows[name].tolerance * norm_of(measure)
        growth = max(1.0, norm_of(made) / size) if size else 1.0
    return left <= allowed * growth and CLOSER * left < usual


def _laid_out(known: Known, name: str) -> Iterator[str]:
    """The same numbers in another order."""
    ours = known.ours[name]
    return (says for says, made in layouts(ours, ours.shape) if fits(known, name, made))
