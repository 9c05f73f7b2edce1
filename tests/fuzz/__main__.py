"""`python -m tests.fuzz --cases N --seed S [--kind K]`: a long run, with a table of what came."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from npgpt.cli import table
from tests.fuzz import gguf_files, models, tensors, training, vocabularies
from tests.fuzz.harness import Change, Kind, Outcome, Sound, make_sound, run_case

KINDS: list[Kind] = [
    kind for m in (models, vocabularies, tensors, gguf_files, training) for kind in m.KINDS
]


class Case(NamedTuple):
    """A case that was run."""

    number: int
    kind: str
    change: Change
    outcome: Outcome


def numbers_of(kind: str, first: int = 0) -> Iterator[int]:
    """The numbers from `first` on whose case is of a kind that begins so."""
    number = first
    while True:
        if KINDS[number % len(KINDS)].name.startswith(kind):
            yield number
        number += 1


def run_cases(numbers: Iterable[int], root: Path) -> Iterator[Case]:
    """Each case as it is done; a number says all about it."""
    sounds: dict[str, Sound] = {}
    for number in numbers:
        kind = KINDS[number % len(KINDS)]
        if kind.name not in sounds:
            sounds[kind.name] = make_sound(kind, root)
        yield Case(number, kind.name, *run_case(kind, sounds[kind.name], number))


def summary(cases: list[Case]) -> str:
    """A line for each kind."""
    rows = [["kind", "cases", "refused", "read", "failed", "worst s", "worst MB"]]
    for name in [kind.name for kind in KINDS if any(case.kind == kind.name for case in cases)]:
        done = [case.outcome for case in cases if case.kind == name]
        failed = sum(each.failure is not None for each in done)
        refused = sum(each.refusal is not None for each in done)
        worst = max(each.seconds for each in done), max(each.megabytes for each in done)
        counts = len(done), refused, len(done) - refused - failed, failed
        rows.append([name, *map(str, counts), f"{worst[0]:.2f}", f"{worst[1]:.0f}"])
    return table(rows, "lrrrrrr")


def main() -> int:
    """Run the cases; 1 if any of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--kind", default="", help=", ".join(kind.name for kind in KINDS))
    parser.add_argument("--verbose", action="store_true", help="each case, and its refusal")
    args = parser.parse_args()
    numbers, start, cases = numbers_of(args.kind, args.seed), time.monotonic(), []
    with tempfile.TemporaryDirectory() as root:
        wanted = (number for _, number in zip(range(args.cases), numbers, strict=False))
        for case in run_cases(wanted, Path(root)):
            cases.append(case)
            if args.verbose or case.outcome.failure:
                came = case.outcome.failure or case.outcome.refusal or "read"
                print(f"{case.number} {case.kind}: {case.change.what!a:.150}\n    {came!a:.400}")
    print(summary(cases))
    print(f"{len(cases)} cases in {time.monotonic() - start:.0f} s")
    return int(any(case.outcome.failure for case in cases))


if __name__ == "__main__":
    sys.exit(main())
