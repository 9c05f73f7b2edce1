"""`python -m npgpt.describe`: which models it finds, and what it refuses in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from npgpt import cli
from npgpt.describe import command as describe
from tests.tiny import tiny_config, write_tiny_model


@pytest.fixture
def run(capsys):
    """Run the command in this process: exit code, stdout, stderr."""

    def call(*argv: object) -> tuple[int, str, str]:
        code = cli.run(describe.PROG, describe.main, [str(a) for a in argv])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def described(run):
    """What `--json` says."""

    def call(*argv: object) -> dict[str, Any]:
        code, out, err = run(*argv, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call


def write_config(folder: Path, raw: object) -> Path:
    path = folder / "config.json"
    path.write_text(raw if isinstance(raw, str) else json.dumps(raw), encoding="utf-8")
    return path


def test_a_config_json_and_its_folder_are_the_same_and_need_no_weights(described, tmp_path):
    path = write_config(tmp_path, tiny_config().to_dict())
    by_file, by_folder = described(path), described(tmp_path)
    assert (by_file.pop("model"), by_folder.pop("model")) == (str(path), str(tmp_path))
    assert by_file == by_folder
    assert by_file["tokens"] == 32  # all positions
    assert by_file["config"]["n_embd"] == 12


def test_weights_are_never_opened(described, tmp_path):
    folder = write_tiny_model(tmp_path)
    (folder / "model.safetensors").write_bytes(b"no safetensors")
    assert described(folder)["parameters"]["total"] == 257 * 12 + 32 * 12 + 2 * 1884 + 24


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("openai-community/gpt2-xl", 1_557_611_200),
    ],
)
def test_presets_need_neither_network_nor_folder(described, name, total, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(describe, "find_supported", lambda *_, **__: pytest.fail("looked for it"))
    preset = described(name)
    assert preset["parameters"]["total"] == total
    assert preset["config"]["n_embd"] // preset["config"]["n_head"] == 64


def test_a_hub_id_is_asked_for_its_configuration_alone(described, monkeypatch, tmp_path):
    write_config(tmp_path, tiny_config().to_dict())
    asked = []

    def find_supported(command: str, name: str, *, files: tuple[str, ...]) -> Path:
        asked.append((command, name, files))
        return tmp_path

    monkeypatch.setattr(describe, "find_supported", find_supported)
    assert described("owner/tiny")["config"]["n_layer"] == 2
    assert asked == [("describe", "owner/tiny", ("config",))]


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ("{", "config.json"),
        ("[]", "not a JSON object"),
        ({"model_type": "mamba"}, "model_type is 'mamba', but npgpt knows gpt2, llama"),
        ({"model_type": "llama", "hidden_size": 0}, "hidden_size is 0"),
        ({"n_embd": 10, "n_head": 3}, "n_head 3"),
        ({"vocab": 1}, "neither a model_type nor any size"),
    ],
)
def test_a_bad_configuration_is_one_sentence_and_exit_2(run, tmp_path, raw, says):
    code, out, err = run(write_config(tmp_path, raw))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert says in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("gpt2", "--context", 1025), "1024"),
        (("gpt2", "--context", 0), "--context"),
        (("gpt2", "--batch", 0), "--batch"),
        (("gpt2", "--json", "--mermaid"), "choose one"),
        (("nowhere/config.json",), "no file nowhere/config.json"),
        (("weights/nowhere",), "weights/nowhere"),
        (("",), "empty"),
        ((".",), "config.json"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(run, arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert says in err


def test_python_m():
    command = [sys.executable, "-W", "error", "-m", "npgpt.describe", "gpt2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8")
    assert "124,439,808" in done.stdout


@pytest.mark.real
def test_real_configurations(described, data_dir):
    totals = {"llm-viz": 85_728, "slm4096": 211_712, "capp-gpt": 236_224}
    for name, total in totals.items():
        folder = data_dir / "checkpoints" / name
        assert described(folder)["parameters"]["total"] == total


@pytest.mark.hf
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("gpt2", {}),
        ("gpt2-medium", {"n_embd": 1024, "n_layer": 24, "n_head": 16}),
        ("gpt2-large", {"n_embd": 1280, "n_layer": 36, "n_head": 20}),
        ("gpt2-xl", {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    ],
)
def test_presets_have_as_many_parameters_as_in_transformers(hf, described, name, sizes):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.device("meta"):
        theirs = GPT2LMHeadModel(GPT2Config(**sizes))
    block = sum(p.numel() for p in theirs.transformer.h[0].parameters())
    parameters = described(name)["parameters"]
    assert parameters["total"] == sum(p.numel() for p in theirs.parameters())
    assert parameters["block"] == block


def test_an_untied_head_has_parameters_of_its_own(described, tmp_path):
    path = write_config(tmp_path, {"model_type": "gpt2", "tie_word_embeddings": False})
    parameters = described(path)["parameters"]
    assert parameters["lm_head"] == 38_597_376
    assert parameters["total"] == 124_439_808 + 38_597_376
