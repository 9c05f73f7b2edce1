"""Freed memory is kept where the C library can be told to."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import textwrap

import pytest

from npgpt import cli


@pytest.mark.skipif(sys.platform != "linux", reason="other systems are left alone")
def test_an_array_gets_the_pages_of_the_one_before() -> None:
    script = """
        import resource
        import numpy as np
        from npgpt.cli import keep_freed_memory

        def new_pages():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            np.ones(1 << 22, np.float32)
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

        new_pages()
        told = keep_freed_memory()
        new_pages()
        print(told, new_pages())
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    told, pages = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert told == "False" or int(pages) < 4


def test_other_systems_are_left_alone(monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not cli.keep_freed_memory()


def test_a_c_library_without_the_call_is_left_alone(monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not cli.keep_freed_memory()
