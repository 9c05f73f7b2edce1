"""docs/article.md, the article claim by claim: nothing is missing, and all of it is printed.

What the examples print is compared in test_languages.py, where they run in both languages.
"""

from __future__ import annotations

import functools
import re

import pytest

from tests.examples.test_examples import APART, ROOT, SCRIPTS, helper

PAGES = "docs/article.md", "docs/article.zh-CN.md"


@functools.cache
def rows(page: str) -> list[list[str]]:
    """Section, claim, shown by, prints, test; without the heads of the tables."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [row for row in cells if "tests/" in row[-1]]


def quoted(name: str, page: str) -> list[str]:
    """What a page says that a script prints."""
    fragments = [row[3] for row in rows(page) if row[2].startswith(f"[{name}]")]
    return [fragment.strip("`") for fragment in fragments if fragment]


def in_one_space(text: str) -> str:
    """Columns side by side, as the page quotes them."""
    return re.sub(" +", " ", text)


def test_every_claim_has_a_script_and_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    english, chinese = map(rows, PAGES)
    assert len(english) > 90
    assert {len(row) for row in english + chinese} == {5}
    assert [row[2::2] for row in chinese] == [row[2::2] for row in english]
    in_chinese = helper("show", monkeypatch).in_chinese
    numbered = [(e[0], c[0]) for e, c in zip(english, chinese, strict=True) if e[0] != "next"]
    assert [
        pair for pair in numbered if "…" not in pair[0] and in_chinese(pair[0]) != pair[1]
    ] == []
    assert {section.split(".")[0] for section, _ in numbered} >= {*map(str, [*range(1, 12), 13])}
    for _, claim, script, printed, test in english:
        assert claim
        if shown := re.fullmatch(r"\[(\w+)\]\(\.\./examples/(\w+)\.py\)", script):
            assert shown[1] == shown[2]
            assert printed or shown[1] in APART
        else:
            assert re.fullmatch(r"`npgpt \w+ .*`", script)
        path = re.fullmatch(r"\[(?:faults: )?(\w+)\]\(\.\./(tests/[\w/]+\.py)\)", test)
        assert path is not None
        assert (ROOT / path[2]).stem == path[1]
        assert (ROOT / path[2]).is_file()


@pytest.mark.parametrize("suffix", ["", ".zh-CN"])
def test_every_example_is_on_the_page_or_in_the_map(suffix: str) -> None:
    pages = [ROOT / f"docs/article{suffix}.md", ROOT / f"README{suffix}.md"]
    linked = {
        name
        for page in pages
        for name in re.findall(r"^\| .*$", page.read_text("utf-8"), re.MULTILINE)
        for name in re.findall(r"examples/(\w+)\.py", name)
    }
    assert {*SCRIPTS, *APART} - linked == {"vectors_with_torch"}  # docs/porting.md
