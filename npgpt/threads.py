"""Several threads for work that falls into independent parts.

NumPy lets go of the interpreter's lock inside its loops, so threads do help where the parts are
large. Only for parts of which each writes arrays of its own: then the result does not depend on
the number of threads. Matrix products are left out, since BLAS has threads of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Part = TypeVar("Part")


def each(function: Callable[[Part], object], parts: Iterable[Part]) -> None:
    """Call `function` with every part; what one of them raises is raised here."""
    with ThreadPoolExecutor(thread_count()) as pool:
        for _ in pool.map(function, parts):
            pass


def thread_count() -> int:
    """As many as BLAS takes: OMP_NUM_THREADS, or else one for each processor given to us."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
