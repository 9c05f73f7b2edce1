"""A command on a model that it cannot work on says so, before any weights are read."""

from __future__ import annotations

import json

import pytest

from npgpt.__main__ import module_of
from npgpt.models.auto import MODEL_TYPES

ARGUMENTS = {
    "generate": ["a text", "--model"],
    "evaluate": ["a file", "--model"],
    "compare": ["a text", "--model"],
    "describe": [],
    "train": ["--data", "DATA", "--out", "OUT", "--init"],
    "trace": ["a text", "--model"],
    "explore": ["a text", "--model"],
    "fill_mask": ["a [MASK]", "--model"],
    "translate": ["a text", "--model"],
}
REFUSED = [
    (kind, command)
    for kind, working in MODEL_TYPES.items()
    for command in ARGUMENTS
    if command not in working
]


def test_every_command_works_on_some_model() -> None:
    assert set().union(*MODEL_TYPES.values()) == set(ARGUMENTS)


@pytest.mark.parametrize(("kind", "command"), REFUSED)
def test_one_sentence_names_what_does_work(tmp_path, capsys, monkeypatch, kind, command) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "DATA").write_text("a text to train on", "utf-8")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": kind}), "utf-8")
    main = module_of(command).main
    with pytest.raises(ValueError, match=f"'model' is a {kind}, on which npgpt.{command} does not"):
        main([*ARGUMENTS[command], "model"])
    assert not (tmp_path / "OUT").exists()
