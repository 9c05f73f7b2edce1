"""The READMEs keep their word: same commands in both, files that exist, options that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

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


def test_options_in_commands_exist():
    seen = 0
    for command in commands(ENGLISH):
        called = re.search(r"python -m npgpt\.(\w+)(.*)", command)
        if called is None:
            continue
        parser = importlib.import_module(f"npgpt.{called[1]}")._parser()
        known = {option for action in parser._actions for option in action.option_strings}
        used = set(re.findall(r"(?<=\s)--[a-z-]+", called[2]))
        assert used <= known, f"{called[1]}: {used - known}"
        seen += len(used)
    assert seen >= 5
