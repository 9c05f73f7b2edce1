"""Work in threads: every part once, errors come out, BLAS is left as it was."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from threading import Barrier, Thread, get_ident
from types import SimpleNamespace

import numpy as np
import pytest

from npgpt.ops import threads


def test_every_part_is_done_once() -> None:
    done: list[int] = []
    threads.parallel(done.append, range(100))
    assert sorted(done) == list(range(100))


def test_what_a_part_raises_is_raised() -> None:
    def fail(part: int) -> None:
        if part == 3:
            raise ValueError("part 3")

    with pytest.raises(ValueError, match="part 3"):
        threads.parallel(fail, range(5))


@pytest.fixture
def openblas(monkeypatch):
    """Stands in for the two functions of OpenBLAS; the list holds what it was told."""
    told = [3]

    def functions():
        return lambda: told[-1], told.append

    monkeypatch.setattr(threads, "_openblas", functions)
    monkeypatch.setattr(threads, "OPENBLAS_RESTS", True)
    return told


def test_blas_is_held_to_one_thread_while_the_parts_use_it(openblas) -> None:
    seen = []
    threads.parallel_blas(lambda part: seen.append((part, openblas[-1])), range(20))
    assert sorted(seen) == [(part, 1) for part in range(20)]
    assert openblas == [3, 1, 3]


def test_blas_gets_its_threads_back_after_an_error(openblas) -> None:
    def fail(part: int) -> None:
        raise ValueError(f"part {part}")

    with pytest.raises(ValueError, match="part 0"):
        threads.parallel_blas(fail, range(1))
    assert openblas == [3, 1, 3]


def test_two_callers_at_once_leave_blas_as_it_was(openblas) -> None:
    callers = [
        Thread(target=threads.parallel_blas, args=(time.sleep, [0.01] * 6)) for _ in range(4)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert openblas[-1] == 3


@pytest.mark.parametrize("why", ["another BLAS", "its threads stay awake", "one thread"])
def test_one_part_after_the_other_where_threads_would_not_help(openblas, monkeypatch, why) -> None:
    if why == "another BLAS":
        monkeypatch.setattr(threads, "_openblas", lambda: None)
    elif why == "one thread":
        openblas[:] = [1]
    else:
        monkeypatch.setattr(threads, "OPENBLAS_RESTS", False)
    before, here = list(openblas), get_ident()
    seen = []
    threads.parallel_blas(lambda part: seen.append((part, get_ident())), range(5))
    assert seen == [(part, here) for part in range(5)]
    assert openblas == before


def test_several_threads_take_part() -> None:
    meeting = Barrier(2)
    threads._in_threads(lambda _: meeting.wait(timeout=30), range(2), 2)
    assert not meeting.broken


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
def test_a_forked_child_has_threads_of_its_own() -> None:
    code = (
        "import os, sys; from npgpt.ops import threads\n"
        "threads._in_threads(str, range(9), 2)\n"
        "if os.fork() == 0:\n"
        "    done = []; threads._in_threads(done.append, range(9), 2); os._exit(len(done))\n"
        "sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 9


@pytest.mark.parametrize(
    ("imports", "rests"), [("npgpt, numpy", True), ("numpy, npgpt", False), ("npgpt.cli", True)]
)
def test_blas_rests_where_npgpt_came_before_numpy(imports, rests) -> None:
    code = f"import {imports}; from npgpt.ops import threads; print(threads.OPENBLAS_RESTS)"
    env = {key: value for key, value in os.environ.items() if key != "OPENBLAS_THREAD_TIMEOUT"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert found.stdout == f"{rests}\n"


def test_as_many_threads_as_openblas_says(openblas) -> None:
    assert threads.thread_count() == 3


@pytest.mark.parametrize(
    ("value", "count"), [("3", 3), ("1", 1), ("", None), ("0", None), ("x", None)]
)
def test_as_many_threads_as_another_blas_takes(monkeypatch, value, count) -> None:
    monkeypatch.setattr(threads, "_openblas", lambda: None)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    processors = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    )
    assert threads.thread_count() == (count or processors)


@pytest.mark.parametrize(
    ("openblas", "omp", "count"), [("3", "2", 3), ("", "2", 2), ("0", "2", 2), ("3", "", 3)]
)
def test_the_variable_of_openblas_comes_first(monkeypatch, openblas, omp, count) -> None:
    """On Windows NumPy's OpenBLAS cannot be asked, but it reads these."""
    monkeypatch.setattr(threads, "_openblas", lambda: None)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", openblas)
    monkeypatch.setenv("OMP_NUM_THREADS", omp)
    assert threads.thread_count() == count


@pytest.mark.parametrize("names", ["scipy_openblas_{}64_", "openblas_{}"])
@pytest.mark.parametrize(("kind", "found"), [(0, True), (1, True), (2, False)])
def test_an_openblas_with_openmps_threads_counts_as_another_blas(
    monkeypatch, names, kind, found
) -> None:
    """OpenMP sets the number for the thread that asks, so our workers would have all of them."""
    values = {"get_num_threads": 3, "set_num_threads": None, "get_parallel": kind}
    functions = {names.format(name): lambda value=value: value for name, value in values.items()}
    monkeypatch.setattr(ctypes, "CDLL", lambda path: SimpleNamespace(**functions))
    answer = threads._openblas.__wrapped__()
    assert (answer and answer[0]()) == (3 if found else None)


def test_workers_treat_floating_point_errors_as_their_caller_does() -> None:
    meeting, found = Barrier(2), []

    def overflow(_: int) -> None:
        meeting.wait(timeout=30)  # so that both threads have a part
        found.append((np.geterr()["over"], np.full(3, 1e300) * 1e300))

    with np.errstate(over="ignore"):
        threads._in_threads(overflow, range(2), 2)
    assert [kind for kind, _ in found] == ["ignore", "ignore"]
