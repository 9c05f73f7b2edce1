"""Several files take their places together, or none does; JSON in which a key stands twice."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from npgpt.files.io import clear_litter, parse_json, replacing


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
