"""Several files take their places together, or none does; JSON in which a key stands twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from npgpt.files import io
from npgpt.files.io import clear_litter, expanded, parse_json, replacing


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_files_are_replaced_and_removed_together(tmp_path):
    for name in "abc":
        (tmp_path / name).write_text("old")
    with replacing(tmp_path / "a", tmp_path / "b", gone=[tmp_path / "c"]) as temporaries:
        for path in temporaries:
            path.write_text("new")
        assert contents(tmp_path).keys() > {"a", "b", "c"}
        assert (tmp_path / "a").read_text() == "old"
    assert contents(tmp_path) == {"a": "new", "b": "new"}


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


def test_litter_of_a_killed_process_is_cleared_and_nothing_else(tmp_path):
    for name in (".a.0123abcd.tmp", ".a.tmp", "a.0123abcd.tmp", ".a.0123abcg.tmp"):
        (tmp_path / name).touch()
    clear_litter(tmp_path)
    assert set(contents(tmp_path)) == {".a.tmp", "a.0123abcd.tmp", ".a.0123abcg.tmp"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b'{"a": {"b": 1, "b": 2}}', "the key 'b' stands there twice"),
        (b"[1, 2", "is not valid JSON"),
        (b"\xff", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
    ],
)
def test_wrong_json_is_refused_by_name(text, says):
    with pytest.raises(ValueError, match="the file is not valid JSON") as caught:
        parse_json(text, "the file")
    assert says in str(caught.value)
    assert parse_json(b'{"a": [1]}', "the file") == {"a": [1]}
