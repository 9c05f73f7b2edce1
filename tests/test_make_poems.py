"""The scripts about the model `poems`: its training text, and whether poems keep their form."""

from importlib import import_module
from pathlib import Path

import pytest

WEIGHTS = Path(__file__).parents[1] / "weights"
END = "<|endoftext|>"
# 绝句: lines 2 and 4 rhyme (ying, qing).
POEM = "床前明月光，疑是地上霜。\n举头望明月，低头思故乡。\n"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(WEIGHTS)
    return import_module


def test_each_poem_is_ended(script, tmp_path, capsys):
    source, out = tmp_path / "poems", tmp_path / "out"
    source.mkdir()
    for name in ("tang.txt", "held-out.txt"):
        (source / name).write_text("《一》甲\n一。\n\n《二》乙\n二。\n", encoding="utf-8")
    assert script("make_poems").main(["--poems", str(source), "--out", str(out)]) == 0
    ended = f"《一》甲\n一。\n{END}《二》乙\n二。\n{END}"
    for path in (out / "train" / "tang.txt", out / "held-out" / "held-out.txt"):
        assert path.read_bytes() == ended.encode()
    assert "tang.txt               2 poems" in capsys.readouterr().out


def test_without_poems_the_command_says_so(script, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no \.txt files"):
        script("make_poems").main(["--poems", str(tmp_path), "--out", str(tmp_path)])


def test_the_form_of_a_poem(script):
    pytest.importorskip("pypinyin")
    form = script("poem_form").form
    assert form(POEM + END, 5) == (
        *(True, True, True),
        ["疑是地上霜", "举头望明月", "低头思故乡"],
    )
    assert not form(POEM.replace("举头", "举") + END, 5).lengths
    assert not form(POEM, 5).ended  # it goes on
    assert not form(POEM + "一二三四五。" + END, 5).ended  # an odd line
    assert not form(POEM.replace("故乡", "故国") + END, 5).rhymes
    assert not form(POEM.partition("\n")[0] + END, 5).rhymes  # one couplet rhymes with nothing


def test_a_character_rhymes_in_all_its_readings(script):
    pytest.importorskip("pypinyin")
    rhymes_of = script("poem_form").rhymes_of
    assert rhymes_of("光") == rhymes_of("乡") == {"ang iang uang"}
    assert {"ai uai", "an ian uan van"} <= rhymes_of("还")  # hái, huán
    assert rhymes_of("A") == set()


def test_poems_are_read_from_the_training_text(script, tmp_path):
    path = tmp_path / "x.txt"
    path.write_text(f"《静夜思》李白\n{POEM}{END}《一》甲\n一二三。\n{END}", encoding="utf-8")
    module = script("poem_form")
    (title, lines), (_, short) = module.poems(path)
    assert (title, lines[0], len(lines)) == ("《静夜思》李白", "床前明月光", 4)
    assert module.regular(lines, 5)
    assert not module.regular(lines, 7)
    assert not module.regular(short, 3)
