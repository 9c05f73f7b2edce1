"""Every picture is made, in both languages; what it shows are the examples' numbers."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.examples.test_examples import ROOT, TALES, helper, run

pytestmark = pytest.mark.usefixtures("matplotlib")
DOCS = ROOT / "docs"
CHINESE = re.compile("[一-鿿]")


@pytest.fixture
def plots(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module plots; what it tells matplotlib is forgotten afterwards."""
    import matplotlib

    with matplotlib.rc_context():
        module = helper("plots", monkeypatch)
        module.say_what_is_missing.cache_clear()
        yield module


@pytest.fixture
def pictures(plots: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module pictures, whose translator does not learn."""
    module = helper("pictures", monkeypatch)
    monkeypatch.setattr(module, "train", lambda model, steps, rng, warmup: None)
    return module


@pytest.fixture
def speak(plots: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the language of titles and captions."""

    def choose(language: str) -> None:
        for module in (plots, helper("show", monkeypatch)):
            monkeypatch.setattr(module, "LANGUAGE", language)

    return choose


@pytest.fixture
def drawn(pictures: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, list[str]]]:
    """All texts of each picture, or of some, by its name; nothing is written."""
    from matplotlib.text import Text

    def texts(*only: str) -> dict[str, list[str]]:
        found = {}

        def keep(figure: Any, path: Path) -> None:
            found[path.stem] = [text.get_text() for text in figure.findobj(Text)]

        monkeypatch.setattr(pictures, "save", keep)
        options = ["--only", *only] if only else []
        assert pictures.main(["nowhere", "--model", *(TALES or ["random"]), *options]) == 0
        return found

    return texts


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_picture_is_made(
    language: str, pictures: Any, speak: Callable[[str], None], tmp_path: Path
) -> None:
    """With or without a Chinese font: a missing glyph would be a warning, and so an error."""
    speak(language)
    assert pictures.main([str(tmp_path), "--model", *(TALES or ["random"])]) == 0
    left_out = set() if TALES else {"words"}
    known = pictures.pictures(pictures.open_model("random"), "").keys()
    assert {path.stem for path in tmp_path.iterdir()} == known - left_out
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        width, height = struct.unpack(">II", data[16:24])
        assert data.startswith(b"\x89PNG")
        assert 700 < width < 1800, path.name
        assert 350 < height < 1200, path.name
        assert 8_000 < len(data) < 90_000, path.name


def test_captions_are_in_the_language_asked_for(
    plots: Any,
    speak: Callable[[str], None],
    drawn: Callable[..., dict[str, list[str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plots, "chinese_font", lambda: "DejaVu Sans")  # nothing is rendered
    speak("zh")
    # Symbols, formulas, names and single English words may stay.
    said = {name: [t for t in texts if CHINESE.search(t)] for name, texts in drawn().items()}
    assert {name for name, texts in said.items() if len(texts) < 3} == set()
    speak("en")
    said = {name: [t for t in texts if CHINESE.search(t)] for name, texts in drawn().items()}
    assert {name for name, texts in said.items() if texts} == set()


def test_they_show_the_articles_numbers(drawn: Callable[..., dict[str, list[str]]]) -> None:
    expected = {
        "rope": {"q · k = 3.732\ndog two to the left": 1, "q · k = 0.268\ndog two to the right": 3},
        "six_steps": {"−∞": 3, "0.88": 3, "0.45": 1, "1.50": 2, "-0.105": 3, "1.393": 1},
        "scaling": {"softmax([10, 0]): 0.00005": 1, "softmax([10, 0] / √128): 0.21": 1},
        "gelu": {"-0.159": 1, "0.841": 1, "-0.083": 1, "0.500": 1, "1.083": 1},
        "parameters": {"31.0%": 1, "6.5%": 2, "70.2%": 1},
    }
    shown = drawn(*expected)
    for name, numbers in expected.items():
        assert {number: shown[name].count(number) for number in numbers} == numbers, name


def test_a_random_model_has_no_words(tmp_path: Path) -> None:
    done = run("pictures", str(tmp_path), "--model", "random", "--only", "words", "loss")
    assert (done.returncode, done.stderr) == (0, "")
    assert "left out: random weights know no words" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["loss.png"]


def test_a_picture_that_is_not_there_is_said_in_one_sentence(tmp_path: Path) -> None:
    done = run("pictures", str(tmp_path), "--model", "random", "--only", "cats")
    assert done.returncode == 2
    assert "error: There is no picture 'cats'; there are translation, words, " in done.stderr


def test_heads_with_any_characters_in_the_labels(tmp_path: Path) -> None:
    """Chinese, emoji, $: a missing glyph would be a warning, and so an error."""
    text, heads = "猫追狗 $x$ 😁 \\frac", tmp_path / "heads.png"
    words = ("--from", "狗", "--to", "猫", "--out", str(heads))
    done = run("ch07_heatmap", "--model", "random", "--text", text, *words)
    assert done.returncode == 0, done.stderr
    assert 10_000 < heads.stat().st_size < 60_000


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--from", "猫"], "There is no word '猫' in 'The cat sat on"),
        (["--from", "cat", "--to", "it"], "'cat' stands before 'it', and no token sees"),
        (["--layer", "12"], "There is no block 12 head 0: 12 blocks have 12 heads each."),
    ],
)
def test_a_head_that_cannot_be_is_said_in_one_sentence(options: list[str], sentence: str) -> None:
    done = run("ch07_heatmap", "--model", "random", *options)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"ch07_heatmap.py: error: {sentence}")


def test_a_text_without_the_usual_words_is_drawn_all_the_same() -> None:
    done = run("ch07_heatmap", "--model", "random", "--text", "no such words")
    assert (done.returncode, done.stderr) == (0, "")
    assert "There is no word 'it' in 'no such words'; name others with --from" in done.stdout
    assert done.stdout.count("block ") == 1


def test_a_character_without_a_glyph_is_a_box_and_the_font_is_named_once(
    plots: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    plots.pyplot().rcParams["font.family"] = ["DejaVu Sans"]
    assert plots.drawable("aé\n\U0010ffff") == "aé\n□"
    assert capsys.readouterr().err == ""
    assert [plots.drawable("a猫é"), plots.drawable("三")] == ["a□é", "□"]
    assert capsys.readouterr().err == (
        "no Chinese font: install Noto Sans CJK, e.g. apt install fonts-noto-cjk; until then "
        "captions are English, and □ stands for each Chinese character.\n"
    )


def test_docs_show_every_picture_and_nothing_else_is_there() -> None:
    files = {path.relative_to(DOCS).as_posix() for path in (DOCS / "pictures").iterdir()}
    shown = {
        name
        for page in (*DOCS.glob("*.md"), *ROOT.glob("README*.md"))
        for name in re.findall(r"\]\((?:docs/)?(pictures/[\w.-]+\.png)\)", page.read_text("utf-8"))
    }
    assert files == shown
    assert sum((DOCS / name).stat().st_size for name in files) < 1_000_000


def test_both_pages_have_every_picture_in_the_order_of_the_list(pictures: Any) -> None:
    names = list(pictures.pictures(pictures.open_model("random"), ""))
    for page, ending in (("pictures.md", ""), ("pictures.zh-CN.md", ".zh")):
        text = (DOCS / page).read_text("utf-8")
        assert re.findall(r"\]\(pictures/([\w.-]+)\.png\)", text) == [n + ending for n in names]
