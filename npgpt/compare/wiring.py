"""Which station depends on which, forward and backward, and where a fault may then be.

A station may be wrong because its own step is, or because one before it is that the other side did
not show.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from npgpt.compare.activations import GRAD, is_optional
from npgpt.compare.steps import BIAS, GAIN, MATRIX, UNCHANGED, Step, Steps, steps_of


class Wiring(NamedTuple):
    """Stations, loss, `grad.<station>` and `grad.<parameter>` of one model, by name."""

    reads: dict[str, tuple[str, ...]]  # what it is computed from; of gradients, gradients alone
    made_by: dict[str, str]
    operands: dict[str, tuple[str, ...]]  # of a gradient: the stations it is computed with
    same: dict[str, str]  # of a gradient: another one that is equal to it
    proof: dict[str, tuple[str, ...]]  # of a matrix' gradient: its two factors


class Range(NamedTuple):
    """Where the fault is that makes a station wrong."""

    station: str
    after: list[str]  # what is ok, and leads to it
    within: list[str]  # what leads to it and is not there to be judged, in the order of the pass
    made_by: list[str]  # what happens in between
    dump: list[str]  # what would narrow it
    follows: list[str]  # what is wrong before it, of which this one may be a consequence
    fits: tuple[str, ...] = ()  # known faults that make exactly the other side's array


def wiring_of(model: Any) -> Wiring:
    """The graph of the model's pass."""
    steps = steps_of(model)
    reads = {name: step.reads for name, step in steps.items()}
    wiring = Wiring(reads, {name: step.made_by for name, step in steps.items()}, {}, {}, {})
    for name in steps:
        _add_station(wiring, steps, name)
    for param in model.params:
        _add_parameter(wiring, steps, param)
    return wiring


def _add_station(wiring: Wiring, steps: Steps, name: str) -> None:
    """The gradient at a station, which all that reads the station sends back."""
    users = [user for user, step in steps.items() if name in step.reads]
    if not users:
        return
    ways = (f"back through {user}: {steps[user].back}" for user in users)
    wiring.made_by[GRAD + name] = "; ".join(ways)
    wiring.reads[GRAD + name] = tuple(GRAD + user for user in users if user != "loss")
    wiring.operands[GRAD + name] = tuple(x for user in users for x in _used(steps[user], name))
    if len(users) == 1 and steps[users[0]].back == UNCHANGED:
        wiring.same[GRAD + name] = GRAD + users[0]


def _used(step: Step, name: str) -> Iterable[str]:
    return (x for x in step.reads if x != name) if step.is_product else step.used


def _add_parameter(wiring: Wiring, steps: Steps, param: str) -> None:
    """The gradient of a parameter, which may be used in several steps."""
    module, _, kind = param.rpartition(".")
    users = {name: step for name, step in steps.items() if {param, module} & {*step.modules}}
    summed = param.endswith("bias") and all(s.grads in (MATRIX, GAIN) for s in users.values())
    how = (f"at {name}: {BIAS if summed else step.grads}" for name, step in users.items())
    wiring.made_by[GRAD + param] = " plus ".join(how)
    wiring.reads[GRAD + param] = tuple(GRAD + name for name in users)
    operands = () if summed else tuple(x for step in users.values() for x in step.reads)
    wiring.operands[GRAD + param] = operands
    for name, step in users.items():
        alone = len(users) == 1 and kind == "weight" and step.grads == MATRIX
        if alone and GRAD + name in wiring.reads:  # the zeros of a BERT's pooler prove nothing
            wiring.proof[GRAD + param] = (GRAD + name, *step.reads)


def find_range(
    wiring: Wiring,
    station: str,
    *,
    order: Sequence[str],
    there: Collection[str],
    ok: Collection[str],
    wrong: Collection[Range] = (),
    local: bool = False,
) -> Range:
    """Where the fault is that makes `station` wrong, unless what it is computed from is.

    Args:
        order: all names in the order of the pass.
        there: the names that both sides have.
        ok: those of them that agree.
        wrong: what is wrong before it, of which this one may be a consequence: where the other
            side did not show what both are computed with.
        local: each name that is there was computed from those before it, so it says nothing of
            what lies behind them.
    """
    fine = _vouched(wiring, ok)
    shown = {*there} | fine
    if station.startswith(GRAD):  # the whole forward pass is before it
        forward = [name for name in fine if not name.startswith(GRAD)]
        shown |= _ancestors(wiring, forward, there if local else ())
    within = _unshown(wiring, station, shown)
    between = [name for name in order if name in within and name != station]
    after = {read for name in within for read in wiring.reads.get(name, ())} & shown
    return Range(
        station,
        [name for name in order if name in after],
        between,
        list(dict.fromkeys(wiring.made_by[name] for name in (*between, station))),
        _coarsest(between),
        [where.station for where in wrong if {*between} & {*where.within}],
    )


def _unshown(wiring: Wiring, station: str, shown: set[str]) -> set[str]:
    """The station, and what it is computed from as far as nobody has shown it."""
    within, ahead = {station}, [station]
    while ahead:
        name = ahead.pop()
        read = {*wiring.reads.get(name, ()), *wiring.operands.get(name, ())} - shown - within
        within |= read
        ahead += read
    return within


def _vouched(wiring: Wiring, ok: Collection[str]) -> set[str]:
    """What cannot be wrong where these names are ok.

    A matrix' gradient is xᵀ times what arrives, so it vouches for both; a residual sum hands on the
    gradient that it gets.
    """
    found = {*ok, *(factor for name in ok for factor in wiring.proof.get(name, ()))}
    return found | {wiring.same[name] for name in found if name in wiring.same}


def _ancestors(wiring: Wiring, names: Iterable[str], ends: Collection[str]) -> set[str]:
    """The names, and all that they are computed from, up to those that are `ends`."""
    found = {*names}
    ahead = [*found]
    while ahead:
        read = {*wiring.reads[ahead.pop()]} - found
        found |= read
        ahead += read - {*ends}
    return found


def _coarsest(names: Sequence[str]) -> list[str]:
    """Those that cut the way into the largest pieces: layers, sublayers, or what is inside."""
    levels = [_level(name) for name in names]
    return [name for name, level in zip(names, levels, strict=True) if level == min(levels)]


def _level(name: str) -> int:
    parts = name.removeprefix(GRAD).split(".")
    if parts[-1].isdecimal() or not any(part.isdecimal() for part in parts):
        return 0
    return 2 if parts[-1] == "probs" or is_optional(".".join(parts), ()) else 1
