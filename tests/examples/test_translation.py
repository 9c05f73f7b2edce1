"""The example that trains a translator: its made-up language, and that a short run learns."""

from __future__ import annotations

import re

import numpy as np
import pytest

import npgpt
from tests.examples.test_examples import helper, run
from tests.examples.test_languages import say_the_same


@pytest.fixture
def words(monkeypatch):
    return helper("number_words", monkeypatch)


def from_chinese(text):
    """The number that the characters say, read one by one."""
    units = {"十": 10, "百": 100, "千": 1000}
    total = section = digit = 0
    for char in text:
        if char == "万":
            total, section, digit = (section + digit) * 10_000, 0, 0
        elif char in units:
            section, digit = section + (digit or 1) * units[char], 0
        else:
            digit = "零一二三四五六七八九".index(char)
    return total + section + digit


def from_english(words, text):
    """The number that the words say."""
    total = section = 0
    for word in text:
        if word == "thousand":
            total, section = section * 1000, 0
        elif word == "hundred":
            section *= 100
        elif word != "and":
            section += words.SMALL.index(word) if word in words.SMALL else 0
            section += 10 * (words.TENS.index(word) + 2) if word in words.TENS else 0
    return total + section


@pytest.mark.parametrize(
    ("n", "english", "chinese"),
    [
        (0, "zero", "零"),
        (10, "ten", "十"),
        (13, "thirteen", "十三"),
        (110, "one hundred and ten", "一百一十"),
        (1005, "one thousand and five", "一千零五"),
        (10_203, "ten thousand two hundred and three", "一万零二百零三"),
        (100_010, "one hundred thousand and ten", "十万零一十"),
        (120_000, "one hundred and twenty thousand", "十二万"),
        (
            345_678,
            "three hundred and forty five thousand six hundred and seventy eight",
            "三十四万五千六百七十八",
        ),
    ],
)
def test_numbers_in_both_languages(words, n, english, chinese) -> None:
    assert " ".join(words.english(n, with_and=True)) == english
    assert words.chinese(n) == chinese


def test_both_languages_say_the_number(words, rng) -> None:
    for n in [*range(2000), *rng.integers(0, 10**6, 3000).tolist(), 10**6 - 1]:
        assert from_chinese(words.chinese(n)) == n
        for with_and in (False, True):
            assert from_english(words, words.english(n, with_and=with_and)) == n


def test_training_never_sees_what_is_held_out(words, rng) -> None:
    seen, unseen = (words.draw(rng, 5000, unseen=unseen) for unseen in (False, True))
    assert len(seen) == 5000
    assert not set(seen.tolist()) & set(unseen.tolist())
    assert 0.08 < words.held_out(np.arange(10**6)).mean() < 0.12
    lengths = np.bincount([len(str(n)) for n in seen.tolist()])[1:]
    assert lengths.min() > 600


def test_padding(words) -> None:
    ids, real = words.padded([[5, 2], [6, 7, 2]])
    assert ids.tolist() == [[5, 2, 0], [6, 7, 2]]
    assert real.tolist() == [[True, True, False], [True] * 3]


def test_a_short_run_learns_and_says_so_in_both_languages(tmp_path, here) -> None:
    """With nothing but NumPy and npgpt; what it saves is a model that npgpt loads."""
    done = run("train_translation", "--quick", "--save", str(tmp_path), absent=("matplotlib",))
    assert (done.returncode, done.stderr) == (0, "")
    losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", done.stdout)]
    assert len(losses) == 10
    assert losses[-1] < losses[0] / 2
    assert re.search(r"exact match: \d+\.\d+% of 1,\d\d\d", done.stdout)
    assert "cross-attention: where the decoder looks while it writes 三十四万" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
    assert npgpt.from_pretrained(tmp_path).num_params() == 22_912

    chinese = here("train_translation", "--quick", "--save", str(tmp_path), "--lang", "zh")
    assert chinese.failed == []
    say_the_same(done.stdout, chinese.printed)


def test_picture_of_the_cross_attention(matplotlib, tmp_path) -> None:
    """With or without Chinese glyphs: a missing one would be a warning, and so an error."""
    picture = tmp_path / "cross.png"
    done = run("train_translation", "--quick", "--out", str(picture))
    assert (done.returncode, done.stderr) == (0, "")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000


def test_without_matplotlib_the_picture_says_what_to_install(tmp_path) -> None:
    out = str(tmp_path / "x.png")
    done = run("train_translation", "--quick", "--out", out, absent=("matplotlib",))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.endswith('error: pictures need matplotlib: pip install "npgpt[plot]"\n')
