"""Several threads for work that falls into independent parts.

NumPy lets go of the interpreter's lock inside its loops, so threads do help where the parts are
large. Each part must write arrays of its own: then the result does not depend on the number of
threads, except that BLAS may round a product differently on one thread than on two.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import cache, partial
from threading import Lock
from typing import TypeVar

import numpy as np

Part = TypeVar("Part")

# After a product OpenBLAS's threads stand by for the next, awake and by default for a tenth of a
# second, in which they keep the processors from ours. `npgpt/__init__.py` asks for less before
# NumPy is loaded.
OPENBLAS_RESTS = "OPENBLAS_THREAD_TIMEOUT" in os.environ

OPENMP = 2  # what OpenBLAS calls this kind of threads

_blas_is_held = Lock()


def parallel(function: Callable[[Part], object], parts: Iterable[Part]) -> None:
    """Call `function` with every part; what one of them raises is raised here.

    For work without matrix products, as BLAS has threads of its own; else `parallel_blas`.
    """
    _in_threads(function, parts, thread_count())


def parallel_blas(function: Callable[[Part], object], parts: Iterable[Part]) -> None:
    """The same for work with matrix products, which each part then does on its own thread.

    Threads that each ask for all the threads of BLAS wait for one another, so BLAS is held to one
    meanwhile. Where that cannot be, the parts come one after the other and leave BLAS its threads.
    """
    openblas = _openblas()
    if openblas is None or not OPENBLAS_RESTS or thread_count() == 1:
        for part in parts:
            function(part)
        return
    ask, tell = openblas
    # The number is the process's: without the lock a second caller would find, and put back, a 1.
    with _blas_is_held:
        count = ask()
        tell(1)
        try:
            _in_threads(function, parts, count)
        finally:
            tell(count)


def thread_count() -> int:
    """As many as BLAS takes, or, where it cannot be asked, as it usually takes.

    That is OPENBLAS_NUM_THREADS, or OMP_NUM_THREADS, or one for each processor given to us.
    """
    if (openblas := _openblas()) is not None:
        return openblas[0]()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        wanted = os.environ.get(name, "")
        if wanted.isdecimal() and int(wanted) > 0:
            return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_openblas() -> bool:
    """Whether NumPy multiplies with OpenBLAS, on threads of OpenBLAS's own."""
    return _openblas() is not None


@cache
def _openblas() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """What asks and what sets OpenBLAS's number of threads; None if NumPy has another BLAS, or one
    with the threads of OpenMP, where each thread of ours has a number of its own."""
    try:
        library = ctypes.CDLL(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return None
    # As the wheels of NumPy name it, and as it is named by those who build it themselves.
    for name in ("scipy_openblas_{}64_", "openblas_{}"):
        verbs = ("get_num_threads", "set_num_threads", "get_parallel")
        ask, tell, kind = (getattr(library, name.format(verb), None) for verb in verbs)
        if ask is not None and tell is not None and kind is not None:
            return None if kind() == OPENMP else (ask, tell)
    return None


def _in_threads(function: Callable[[Part], object], parts: Iterable[Part], count: int) -> None:
    """The caller's thread is one of the `count`: if it slept instead, the thread that takes its
    place might wake up on a processor that is busy, while another one is idle."""
    waiting = deque(parts)

    def work() -> None:
        while waiting:
            try:
                part = waiting.popleft()
            except IndexError:  # another thread was quicker
                return
            function(part)

    # Each in a copy of the caller's context, where its np.errstate is.
    jobs = [partial(copy_context().run, work) for _ in range(min(count, len(waiting)) - 1)]
    others = [_pool(count - 1).submit(job) for job in jobs]
    try:
        work()
    finally:
        wait(others)
    for other in others:
        other.result()


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    """Kept, as starting threads takes as long as a small operation."""
    return ThreadPoolExecutor(count)


if hasattr(os, "register_at_fork"):  # a forked child has none of its parent's threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
