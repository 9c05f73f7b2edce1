"""`npgpt` and `python -m npgpt`: the commands by name, and a list of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import npgpt.__main__ as npgpt_main
from npgpt.__main__ import COMMANDS
from tests.builders.gpt2 import write_tiny_gpt2


@pytest.fixture
def run(capsys, monkeypatch):
    """`npgpt …` in this process: exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["npgpt", *map(str, arguments)])
        return npgpt_main.main(), *capsys.readouterr()

    return call


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_alone_it_lists_the_commands(run, arguments) -> None:
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    assert out.startswith("usage: npgpt COMMAND …\n\ngenerate   continue a text\n")
    assert [line.split()[0] for line in out.splitlines()[2 : 2 + len(COMMANDS)]] == [*COMMANDS]
    assert max(map(len, out.splitlines())) <= 80


def test_an_unknown_command_is_named_with_those_there_are(run) -> None:
    assert run("generat", "a text") == (
        2,
        "",
        "npgpt: error: there is no command 'generat'; there are " + ", ".join(COMMANDS) + ".\n",
    )


def test_a_command_does_what_its_module_does(run, tmp_path) -> None:
    arguments = ["ab", "--model", str(write_tiny_gpt2(tmp_path)), "--max-new-tokens", "5"]
    outputs = [
        subprocess.run(
            [sys.executable, "-m", *module, *arguments], capture_output=True, text=True, check=True
        ).stdout
        for module in (["npgpt", "generate"], ["npgpt.generate"])
    ]
    assert outputs == [run("generate", *arguments)[1]] * 2
    assert run("generate", "--model", tmp_path)[0::2] == (
        2,
        'npgpt.generate: error: give either a prompt ("-" reads it from stdin) or --ids.\n',
    )


@pytest.mark.parametrize("name", ["fill_mask", "fill-mask", "train", "describe"])
def test_every_command_has_its_own_help(run, name, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        run(name, "--help")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: python -m npgpt.{name.replace('-', '_')} ")
