"""The READMEs keep their word: same commands in both, files that exist, options that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from npgpt.__main__ import module_of

ROOT = Path(__file__).parent.parent
ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def commands(text: str) -> list[str]:
    """The lines of all shell blocks, without comments."""
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).splitlines()
    return [line.split("  #")[0].rstrip() for line in lines if line.strip()]


def python_blocks(text: str) -> list[str]:
    """Python blocks without their comments, which are translated."""
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [re.sub(r" *#.*", "", block) for block in blocks]


def test_both_readmes_have_the_same_commands():
    assert commands(ENGLISH) == commands(CHINESE)
    assert python_blocks(ENGLISH) == python_blocks(CHINESE)
    assert len(commands(ENGLISH)) >= 4


@pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["en", "zh"])
def test_set_up_is_two_commands(text):
    for mark in ("run", "test"):
        block = re.search(rf"<!-- {mark} -->\n(.*?)<!-- end -->", text, re.DOTALL)
        assert block is not None
        assert len(commands(block[1])) == 1
        assert commands(block[1])[0].startswith("pip install ")


def test_continuous_integration_runs_the_readmes_test_command():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "/^<!-- test -->$/,/^<!-- end -->$/p' README.md" in script
    assert "pip install -e '.[test]' && python -m pytest" in commands(ENGLISH)


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, CONTRIBUTING], ids=["en", "zh", "contributing"])
def test_files_that_are_named_exist(text):
    names = set(re.findall(r"`((?:npgpt|tests|weights|examples)/[\w./-]*)`", text)) - {
        "weights/NAME"
    }
    links = re.findall(r"\]\((?!http)([^)#]+)\)", text)
    assert [name for name in [*names, *links] if not (ROOT / name).exists()] == []
    assert names


def test_options_in_commands_exist(capsys):
    seen = 0
    for command in commands(ENGLISH):
        called = re.search(r"python -m npgpt\.(\w+)(.*)", command)
        if called is None:
            continue
        with pytest.raises(SystemExit):
            module_of(called[1]).main(["--help"])
        known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
        used = set(re.findall(r"(?<=\s)--[a-z-]+", called[2]))
        assert used <= known, f"{called[1]}: {used - known}"
        seen += len(used)
    assert seen >= 5


def map_rows(text: str) -> list[list[str]]:
    """The cells of the rows of the map: article, source, run, test."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if "`examples/" in line]
    return [[cell.strip() for cell in row] for row in rows if len(row) == 4]


@pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["en", "zh"])
def test_every_name_in_the_map_exists(text):
    rows = map_rows(text)
    for _, source, *files in rows:
        for path, names in re.findall(r"`(npgpt/[\w/]+\.py)`:((?:,? `\w+`)+)", source):
            code = (ROOT / path).read_text(encoding="utf-8")
            for name in re.findall(r"`(\w+)`", names):
                assert re.search(rf"^\s*(?:def|class) {name}\b", code, re.MULTILINE), (path, name)
        for path in re.findall(r"`((?:examples|tests)/[\w/]+\.py)`", " ".join(files)):
            assert (ROOT / path).is_file(), path
    shown = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert shown - set(re.findall(r"examples/(\w+\.py)", text)) == {
        "show.py",
        "toy.py",
        "any_model.py",
        "encoder_decoder.py",
        "plots.py",
        "benchmark_growth.py",
        "benchmark_work.py",
        "one_layer.py",
        "word_rows.py",
    }


def test_both_maps_point_to_the_same():
    assert [row[1:] for row in map_rows(ENGLISH)] == [row[1:] for row in map_rows(CHINESE)]
