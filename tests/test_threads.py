"""Work in threads: every part once, errors come out, the environment sets how many."""

from __future__ import annotations

import os

import pytest

from npgpt import threads


def test_every_part_is_done_once() -> None:
    done: list[int] = []
    threads.each(done.append, range(100))
    assert sorted(done) == list(range(100))


def test_what_a_part_raises_is_raised() -> None:
    def fail(part: int) -> None:
        if part == 3:
            raise ValueError("part 3")

    with pytest.raises(ValueError, match="part 3"):
        threads.each(fail, range(5))


@pytest.mark.parametrize(
    ("value", "count"), [("3", 3), ("1", 1), ("", None), ("0", None), ("x", None)]
)
def test_as_many_threads_as_blas_takes(monkeypatch, value, count) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    processors = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    )
    assert threads.thread_count() == (count or processors)
