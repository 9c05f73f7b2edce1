"""The parameter table that all architectures share."""

from __future__ import annotations

from npgpt.describe.tables import Wanted, by_path, parameter_lines, several

SHAPES = {
    "t.weight": (7, 2),
    "l.0.a.w": (2, 3),
    "l.0.b.w": (3,),
    "l.1.a.w": (2, 3),
    "l.1.b.w": (3,),
}
WANTED: list[Wanted] = [
    (0, "t", "t."),
    (0, "a layer", "l.0."),
    (1, "both", ("l.0.a.", "l.0.b.")),
    (2, "a", "l.0.a."),
    (0, "all layers", "l."),
    (0, "none", "m."),
    (0, "total", ""),
]


def test_lines_count_what_begins_so() -> None:
    lines = parameter_lines(SHAPES, WANTED, ("l.0.",))
    assert [line.parameters for line in lines] == [14, 9, 9, 6, 18, 0, 32]
    assert [line.of_block for line in lines] == [None, 1, 1, 6 / 9, None, None, None]
    assert [line.share for line in lines[:2]] == [14 / 32, 9 / 32]


def test_shares_are_of_the_whole_that_is_named() -> None:
    lines = parameter_lines(SHAPES, WANTED, ("l.0.", "l.1."), whole="l.")
    assert [line.share for line in lines[:2]] == [14 / 18, 9 / 18]
    assert lines[-1].share == 32 / 18


def test_paths() -> None:
    names = [line.name for line in by_path(parameter_lines(SHAPES, WANTED, ("l.0.",)))]
    assert names[:4] == ["t", "a layer", "a layer/both", "a layer/both/a"]
    assert names[4:] == ["all layers", "none", "total"]


def test_one_is_singular() -> None:
    assert [several(n, "head") for n in (1, 2)] == ["1 head", "2 heads"]
