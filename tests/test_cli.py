"""What all commands share: texts, endings, columns, kept memory, streams, Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import io
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

import npgpt
from npgpt import cli
from npgpt.cli import cut, left, right, table, width


def stdin_of(monkeypatch, raw: bytes, encoding: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw), encoding))


@pytest.mark.parametrize(
    "raw", ["猫\r\né\n".encode(), "猫\né\n".encode("utf-8-sig")], ids=["lines", "mark"]
)
def test_stdin_is_utf_8_whatever_the_locale_and_without_its_mark(monkeypatch, raw):
    stdin_of(monkeypatch, raw, "cp936")
    assert cli.text_or_stdin("-") == "猫\né\n"


def test_stdin_in_the_encoding_of_the_locale_is_read_and_named(monkeypatch):
    """Whoever types `echo 你好 | npgpt generate -` on a Chinese Windows means 你好, not ���."""
    stdin_of(monkeypatch, "你好\r\n".encode("cp936"), "cp936")
    with pytest.warns(UserWarning, match="stdin is not UTF-8: read as cp936"):
        assert cli.text_or_stdin("-") == "你好\n"


@pytest.mark.parametrize(("encoding", "says"), [("UTF-8", "utf-8:"), ("cp936", "utf-8, nor cp936")])
def test_stdin_that_is_no_text_is_refused(monkeypatch, encoding, says):
    """A prompt with U+FFFD in it is not what was meant, so nothing is made of it."""
    stdin_of(monkeypatch, b"a\xff\xff", encoding)
    with pytest.raises(ValueError, match=f"stdin is not {says}"):
        cli.text_or_stdin("-")


def test_a_closed_stdin_is_named(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(ValueError, match="stdin is closed"):
        cli.text_or_stdin("-")


@pytest.mark.parametrize("text", ["", "café 猫 😁", "a\ufffd"])
def test_a_text_that_the_locale_can_read_stays_as_it_is(text):
    assert cli.text(text) == text


@pytest.mark.skipif(sys.platform == "win32", reason="arguments are Unicode there")
def test_a_text_that_the_locale_cannot_read_is_utf_8_or_refused():
    assert cli.text("café 猫".encode().decode("ascii", "surrogateescape")) == "café 猫"
    with pytest.raises(argparse.ArgumentTypeError, match=r"'caf\\udce9' is not .*, nor UTF-8"):
        cli.text("café".encode("latin-1").decode("ascii", "surrogateescape"))


@pytest.mark.parametrize(
    ("system", "error", "gone"),
    [
        ("linux", BrokenPipeError(errno.EPIPE, "Broken pipe"), True),
        ("win32", OSError(errno.EINVAL, "Invalid argument"), True),  # cpython#79935
        ("linux", OSError(errno.EINVAL, "Invalid argument"), False),
        ("win32", OSError(errno.EINVAL, "Invalid argument", "a?.txt"), False),
        ("win32", OSError("config.json is missing"), False),
    ],
)
def test_a_reader_that_has_gone_is_told_from_bad_input(monkeypatch, system, error, gone):
    monkeypatch.setattr(sys, "platform", system)
    assert cli.reader_has_gone(error) is gone


def test_a_closed_pipe_on_windows_is_no_error():
    script = """
        import errno, sys
        from npgpt import cli
        def write(argv):
            raise OSError(errno.EINVAL, "Invalid argument")
        sys.platform = "win32"
        sys.exit(cli.run("prog", write, []))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("catch", [warnings.catch_warnings, contextlib.nullcontext])
def test_warnings_are_shown_as_before_once_a_command_has_ended(monkeypatch, capsys, catch):
    """Free-threaded Python 3.14's catch_warnings does as little for it as nullcontext."""

    def warn(argv):
        warnings.warn("careful", UserWarning, stacklevel=1)
        return 0

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        before = warnings.showwarning
        monkeypatch.setattr(warnings, "catch_warnings", catch)
        assert cli.run("prog", warn, []) == 0
        assert warnings.showwarning is before
    assert capsys.readouterr().err == "prog: warning: careful\n"


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


@pytest.mark.parametrize("most", [2**31, 1 << 25, 0])
def test_glibc_is_asked_for_less_where_it_refuses(monkeypatch, most) -> None:
    """Up to 2.34 it takes 32 MiB at most. The other two settings alone would make it slower."""
    told = []

    def mallopt(name: int, value: int) -> int:
        told.append((name, value))
        return int(name != cli.M_MMAP_THRESHOLD or value <= most)

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert cli.keep_freed_memory() is (most > 0)
    asked = [value for name, value in told if name == cli.M_MMAP_THRESHOLD]
    assert asked == ([2**31 - 1] if most == 2**31 else [2**31 - 1, 1 << 25])
    assert len(told) == len(asked) + (2 if most else 0)


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
