"""What all commands share: text in columns, freed memory that is kept, streams and Ctrl-C."""

from __future__ import annotations

import ctypes
import io
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import npgpt
from npgpt import cli
from npgpt.cli import cut, left, right, table, width


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", 0),
        ("cat", 3),
        ("猫追狗", 6),
        ("，", 2),
        ("ｆ", 2),
        ("😁", 2),
        ("한글", 4),
        ("é", 1),
        ("e\u0301", 1),  # a letter and a combining accent
        ("\u2764\ufe0f", 1),  # a heart and a variation selector
        ("␣⏎", 2),
        ("Čertík", 6),
    ],
)
def test_width(text, columns):
    assert width(text) == columns


@pytest.mark.parametrize(
    ("text", "columns", "kept"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "abcd…"),
        ("猫追狗", 6, "猫追狗"),
        ("猫追狗", 5, "猫追…"),
        ("猫追狗", 4, "猫…"),  # half of 追 would not do
        ("e\u0301e\u0301e", 2, "e\u0301…"),
        ("ab", 1, "…"),
    ],
)
def test_cut_never_exceeds_its_columns(text, columns, kept):
    assert cut(text, columns) == kept
    assert width(kept) <= columns


def test_padding_counts_columns():
    assert left("猫", 4) == "猫  "
    assert right("猫", 4) == "  猫"
    assert left("too long", 4) == "too long"


def test_columns_of_a_table_stand_below_each_other():
    text = table([("a", "1", "x"), ("猫😁", "23", "y"), ("b", "", "")], "lrl")
    assert text == "a      1  x\n猫😁  23  y\nb"


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


def test_closed_streams_are_no_traceback(monkeypatch, capsys):
    for name in ("stdout", "stderr", "stdin"):
        monkeypatch.setattr(sys, name, None)

    def main(argv):
        print("lost")
        return 0 if argv == [] else len(cli.text_or_stdin(argv[0]))

    assert cli.run("prog", main, []) == 0
    sys.stderr.close()
    monkeypatch.setattr(sys, "stderr", stderr := io.StringIO())
    assert cli.run("prog", main, ["-"]) == cli.EXIT_BAD_INPUT
    assert stderr.getvalue().startswith("prog: error: stdin is closed, so there is nothing to read")
    sys.stdout.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize(
    ("command", "quiet"),
    [
        (["-m", "npgpt.describe"], True),
        (["-m", "npgpt", "describe"], True),
        (["{folder}/npgpt", "describe"], True),
        (["{folder}/other"], False),
        (["-m", "other", "npgpt"], False),
    ],
)
def test_ctrl_c_during_the_imports_of_a_command(tmp_path, command, quiet):
    """It comes when NumPy is imported; a program that is not npgpt keeps its traceback."""
    (tmp_path / "numpy.py").write_text("import signal; signal.raise_signal(signal.SIGINT)")
    (tmp_path / "npgpt").write_text("import npgpt.__main__")
    for name in ("other", "other.py"):
        (tmp_path / name).write_text("import npgpt")
    words = [word.format(folder=tmp_path) for word in command]
    path = os.pathsep.join([str(tmp_path), str(Path(npgpt.__file__).parents[1])])
    run = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == -signal.SIGINT
    assert ("KeyboardInterrupt" in run.stderr) is not quiet
    assert (run.stderr == "") is quiet


def test_ctrl_c_is_ours_again_once_a_command_runs():
    def main(argv):
        signal.raise_signal(signal.SIGINT)
        return 0

    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        assert cli.run("prog", main, []) == cli.EXIT_INTERRUPTED
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
