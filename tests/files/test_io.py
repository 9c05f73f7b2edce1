"""Several files take their places together, or none does; locks; JSON with a key twice."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import filelock
import pytest

from npgpt.files import io
from npgpt.files.io import LOCK, alone_in, expanded, parse_json, replacing


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def test_files_are_replaced_and_removed_together(tmp_path):
    for name in "abc":
        (tmp_path / name).write_text("old")
    with replacing(tmp_path / "a", tmp_path / "b", gone=[tmp_path / "c"]) as temporaries:
        for path in temporaries:
            path.write_text("new")
        assert contents(tmp_path) == dict.fromkeys("abc", "old")
    assert contents(tmp_path) == {"a": "new", "b": "new"}
    assert len(list(tmp_path.iterdir())) == 2


def write_both(folder: Path) -> None:
    with replacing(folder / "first", folder / "second") as temporaries:
        for path in temporaries:
            path.write_text("new")


def test_a_file_that_cannot_be_replaced_is_told_from_one_that_was(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()  # which no file can replace
        with pytest.raises(OSError, match=r"first could not be written") as caught:
            write_both(tmp_path)
        unchanged = "what was there before is unchanged." in str(caught.value)
        assert unchanged is (name == "first")
        assert ("save again." in str(caught.value)) is (name == "second")
        assert not list(tmp_path.glob(".*"))
        (tmp_path / name).rmdir()


@pytest.fixture
def held(monkeypatch):
    """File -> how often it can neither be replaced nor removed, as if open on Windows."""
    left: dict[str, int] = {}

    def refusing(call, target):
        def run(path: Path, *more: object, **options: object) -> object:
            name = target(path, *more).name
            left[name] = left.get(name, 0) - 1
            if left[name] >= 0:
                raise PermissionError(13, "Access is denied", str(path))
            return call(path, *more, **options)

        return run

    monkeypatch.setattr(Path, "replace", refusing(Path.replace, lambda path, new: new))
    monkeypatch.setattr(Path, "unlink", refusing(Path.unlink, lambda path, *_: path))
    monkeypatch.setattr(io, "WAITS", (0.0, 0.0))
    return left


def test_a_file_that_is_open_for_a_moment_is_waited_for(tmp_path, held):
    (tmp_path / "old").write_text("old")
    held |= {"first": 2, "second": 1, "old": 2}
    with replacing(tmp_path / "first", tmp_path / "second", gone=[tmp_path / "old"]) as files:
        for path in files:
            path.write_text("new")
    assert contents(tmp_path) == {"first": "new", "second": "new"}


@pytest.mark.parametrize(("name", "unchanged"), [("first", True), ("second", False)])
def test_a_file_that_stays_open_is_named_and_only_the_truth_said(tmp_path, held, name, unchanged):
    for each in ("first", "second"):
        (tmp_path / each).write_text("old")
    held[name] = 99
    with pytest.raises(OSError, match=r"first could not be written \(Access is denied\)") as caught:
        write_both(tmp_path)
    assert ("is unchanged." in str(caught.value)) is unchanged
    assert ("save again." in str(caught.value)) is not unchanged
    assert contents(tmp_path) == {"first": "old" if unchanged else "new", "second": "old"}


def test_the_home_folder_and_nobodys(tmp_path, monkeypatch):
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    assert expanded("~/text.txt") == tmp_path / "text.txt"
    assert expanded("~nobody-there/x") == Path("~nobody-there/x")
    assert expanded(Path("a~b")) == Path("a~b")
    with pytest.raises(ValueError, match="a path is empty"):  # an unset variable of the shell
        expanded("")


def dies_in(block: str, folder: Path) -> None:
    """Run the block of a `with` in a process that is killed in it, as far as the system knows."""
    code = f"""
        import os, sys
        from pathlib import Path
        from npgpt.files.io import alone_in, replacing
        folder = Path(sys.argv[1])
        with {block}:
            os._exit(9)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(folder)]
    assert subprocess.run(command, check=False).returncode == 9


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path):
    mine = (".tmpAb12Cd", ".a.0123abcd.tmp", ".npgpt-a.tmp")  # of other programs, or a file
    for name in mine:
        (tmp_path / name).touch()
    dies_in('replacing(folder / "big") as (t,), t.open("wb") as file', tmp_path)
    (tmp_path / ".npgpt-b.tmp").mkdir()  # killed before it had its lock
    (left,) = tmp_path.glob(".npgpt-*.tmp/big")
    # The safetensors package writes to such a file first; a kill leaves it there.
    left.with_name(".tmpXy34Zz").touch()
    write_both(tmp_path)
    assert set(contents(tmp_path)) == {*mine, "first", "second"}


def test_a_writer_that_lives_keeps_its_temporaries(tmp_path):
    with replacing(tmp_path / "slow") as (slow,):
        slow.write_text("slow")
        write_both(tmp_path)
        other = threading.Thread(target=write_both, args=[tmp_path])
        other.start()
        other.join()
        assert slow.read_text() == "slow"
    assert set(contents(tmp_path)) == {"first", "second", "slow"}


def test_a_folder_that_another_writer_takes_for_an_old_one_is_made_again(tmp_path, monkeypatch):
    """As two that begin at once can: the one clears what the other has not locked yet."""
    acquire = filelock.FileLock.acquire
    taken: list[filelock.BaseFileLock] = []

    def late(lock, *args, **kwargs):
        acquired = acquire(lock, *args, **kwargs)
        if len(taken) < 2:
            taken.append(lock)
            shutil.rmtree(Path(lock.lock_file).parent)
        return acquired

    monkeypatch.setattr(filelock.FileLock, "acquire", late)
    write_both(tmp_path)
    assert len(taken) == 2
    assert set(contents(tmp_path)) == {"first", "second"}
    assert len(list(tmp_path.iterdir())) == 2


def test_temporaries_of_a_disk_without_locks_stay(tmp_path, monkeypatch):
    dies_in('replacing(folder / "big") as (t,), t.open("wb") as file', tmp_path)

    def unable(*_):
        raise NotImplementedError

    monkeypatch.setattr(filelock.FileLock, "acquire", unable)
    write_both(tmp_path)
    assert len(list(tmp_path.glob(".npgpt-*.tmp/big"))) == 1
    assert (tmp_path / "first").read_text() == "new"
    with pytest.warns(UserWarning, match="cannot be locked on this disk"), alone_in(tmp_path):
        pass


def test_a_folder_is_held_by_one_process_and_freed_when_it_is_killed(tmp_path):
    dies_in("alone_in(folder)", tmp_path)
    with alone_in(tmp_path):
        assert (tmp_path / LOCK).exists()
        with pytest.raises(ValueError, match=r"another process is at work in .*: wait until"):
            alone_in(tmp_path).__enter__()
        write_both(tmp_path)
    with alone_in(tmp_path):
        pass


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b'{"a": {"b": 1, "b": 2}}', "the key 'b' stands there twice"),
        (b"[1, 2", "is not valid JSON"),
        (b"\xff", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
        (b'{"a":' * 64 + b"[]" + b"}" * 64, "more than 64 deep"),
    ],
)
def test_wrong_json_is_refused_by_name(text, says):
    with pytest.raises(ValueError, match="the file is not valid JSON") as caught:
        parse_json(text, "the file")
    assert says in str(caught.value)
    assert parse_json(b'{"a": [1]}', "the file") == {"a": [1]}


def test_json_as_deep_and_with_integers_as_long_as_files_have_them() -> None:
    assert parse_json(b"[" * 64 + b"1" + b"]" * 64, "the file")
    assert parse_json(b"[1000000000000000019884624838656]", "the file") == [
        int(1e30)
    ]  # Hugging Face


def test_integers_that_no_file_needs_are_floats() -> None:
    start = time.process_time()
    found = parse_json(b'{"a": 1' + b"0" * 300 + b', "b": -' + b"9" * 3_000_000 + b"}", "the file")
    assert found == {"a": 1e300, "b": -math.inf}
    assert time.process_time() - start < 1
