"""Sentences that lead on: whatever option they name, the command that prints them has it."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from npgpt import cli
from npgpt.__main__ import COMMANDS, module_of
from npgpt.train.options import parser as train_parser
from tests.builders.gpt2 import write_tiny_gpt2
from tests.builders.llama import write_tiny_llama
from tests.test_layering import ROOT
from tests.train.training_runs import run, write_story

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
# Module that several commands share -> options in what only `generate` prints of it: training
# samples with a window that slides, and without a cache where that would refuse.
GENERATE_ALONE = {
    "npgpt/decoding/causal.py": {"--slide"},
    "npgpt/models/llama/model.py": {"--no-cache"},
}
OTHER_PROGRAMS = {  # pip, and one of llama.cpp
    "npgpt/files/hub.py": {"--no-deps"},
    "npgpt/files/gguf_reader.py": {"--merge"},
}
IN_CLI = {"--model", "--revision", "--dtype", "--ids"}  # see the last test


def parser_of(command: str) -> argparse.ArgumentParser:
    if command == "train":
        return train_parser("npgpt.train")
    made: argparse.ArgumentParser = module_of(command)._parser()
    return made


def options_of(command: str) -> set[str]:
    return set(parser_of(command)._option_string_actions)


def said(path: Path) -> set[str]:
    """Options in a module's texts, docstrings aside."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
    ]
    return {option for text in texts for option in OPTION.findall(text)}


def command_of(path: Path) -> str | None:
    """The command that a module belongs to, None for one that several share."""
    name = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return name if name in COMMANDS else None


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT.parent).as_posix(), path


def test_a_commands_own_sentences_name_its_own_options() -> None:
    wrong = {}
    for name, path in modules():
        if command := command_of(path):
            wrong[name] = said(path) - options_of(command)
    assert {name: options for name, options in wrong.items() if options} == {}


def test_sentences_that_commands_share_name_no_options() -> None:
    found = {name: said(path) for name, path in modules() if command_of(path) is None}
    assert found.pop("npgpt/__main__.py") == {"--help"}  # which all have
    assert found.pop("npgpt/cli.py") == IN_CLI
    assert {name: options for name, options in found.items() if options} == (
        GENERATE_ALONE | OTHER_PROGRAMS
    )
    assert set().union(*GENERATE_ALONE.values()) <= options_of("generate")


def test_commands_that_ask_for_a_text_or_ids_have_both() -> None:
    for name, path in modules():
        source = path.read_text(encoding="utf-8")
        command = command_of(path)
        if command and "cli.check_text_or_ids(" in source:
            assert "--ids" in options_of(command), name
        if command and "cli.add_model(" in source:
            assert options_of(command) >= IN_CLI - {"--ids"}, name


@pytest.mark.parametrize("command", ["generate", "trace", "compare", "evaluate", "train"])
def test_without_a_vocabulary(tmp_path, monkeypatch, run_command, command) -> None:
    """What each command says where it has none, with a text to read."""
    folder = write_tiny_gpt2(tmp_path / "model")
    (folder / "merges.txt").unlink()
    monkeypatch.chdir(tmp_path)
    write_story(tmp_path)
    arguments = {
        "evaluate": ["story.txt", "--model"],
        "train": ["--data", "story.txt", "--out", "OUT", "--init"],
    }.get(command, ["a text", "--model"])
    code, out, err = run_command(module_of(command), *arguments, "model")
    assert (code, out) == (2, "")
    wanted = ": add vocab.json and merges.txt, or tokenizer.json; token ids need none.\n"
    assert err.endswith(wanted)


def test_a_sample_beyond_the_length_trained_on(tmp_path, capsys) -> None:
    """With dynamic angles generate says --no-cache, which training does by itself."""
    scaling = {"rope_type": "dynamic", "factor": 4.0}
    folder = write_tiny_llama(tmp_path / "llama", rope_scaling=scaling)
    argv = ["--ids", "1 2", "--max-new-tokens", "40", "--ignore-eos", "--model", str(folder)]
    assert cli.run("npgpt.generate", module_of("generate").main, argv) == 2
    assert "--no-cache" in capsys.readouterr().err
    story = write_story(tmp_path)
    options = ["--init", folder, "--context", 16, "--batch-size", 2]
    options += ["--sample-every", 1, "--steps", 1]
    assert run("--data", story, "--out", tmp_path / "out", *options) == 0
    assert "sample after step 1" in capsys.readouterr().out
