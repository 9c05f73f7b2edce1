"""`python -m npgpt.describe`: which models it finds, and what it refuses in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import npgpt
from npgpt.cli import width
from npgpt.describe import command
from tests.builders.gpt2 import byte_gpt2_config, write_tiny_gpt2

KINDS_OF_TRANSFORMER = ("bart", "marian", "transformer")


def test_a_config_json_and_its_folder_are_the_same_and_need_no_weights(
    described, write_config, tmp_path
):
    path = write_config(byte_gpt2_config().to_dict())
    by_file, by_folder = described(path), described(tmp_path)
    assert (by_file.pop("model"), by_folder.pop("model")) == (str(path), str(tmp_path))
    assert by_file == by_folder
    assert by_file["tokens"] == 32  # all positions
    assert by_file["config"]["n_embd"] == 12


def test_weights_are_never_opened(described, tmp_path):
    folder = write_tiny_gpt2(tmp_path)
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
        ("llama-3-8b", 8_030_261_248),
        ("bert-base-uncased", 109_482_240),
        ("google-bert/bert-base-uncased", 109_482_240),
        ("transformer-base", 63_082_496),
        ("bart-base", 139_420_416),
        ("facebook/bart-base", 139_420_416),
    ],
)
def test_presets_need_neither_network_nor_folder(described, name, total, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "find_supported", lambda *_, **__: pytest.fail("looked for it"))
    preset = described(name)
    assert preset["parameters"]["total"] == total
    if "gpt2" in name:
        assert preset["config"]["n_embd"] // preset["config"]["n_head"] == 64


def test_a_hub_id_is_asked_for_its_configuration_alone(
    described, write_config, monkeypatch, tmp_path
):
    write_config(byte_gpt2_config().to_dict())
    asked = []

    def find_supported(command: str, name: str, *, files: tuple[str, ...]) -> Path:
        asked.append((command, name, files))
        return tmp_path

    monkeypatch.setattr(command, "find_supported", find_supported)
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
        ({"vocab": 1}, "neither a model_type, nor architectures that name one, nor sizes of a GPT"),
        # An old BERT is not taken for a GPT-2.
        ({"hidden_size": 768, "type_vocab_size": 2}, "neither a model_type, nor"),
    ],
)
def test_a_bad_configuration_is_one_sentence_and_exit_2(refused, write_config, raw, says):
    assert says in refused(write_config(raw))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"hidden_size": "768"}, "hidden_size is '768', but must be a positive integer"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"type_vocab_size": None}, "type_vocab_size is None"),
        ({"num_attention_heads": 7}, "hidden_size 768 cannot be cut"),
        ({"hidden_act": ["gelu"]}, "hidden_act is ['gelu'], but must be one of"),
        (
            {"tie_word_embeddings": "false"},
            "tie_word_embeddings is 'false', but must be true or false.",
        ),
        ({"is_decoder": True}, "is_decoder is set"),
    ],
)
def test_configurations_of_a_bert_that_are_refused(refused, write_config, raw, says):
    path = write_config({"model_type": "bert", **raw})
    assert f"{path}: {says}" in refused(path)


@pytest.mark.parametrize("kind", KINDS_OF_TRANSFORMER)
@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"d_model": 512.0}, "d_model is 512.0, but must be a positive integer"),
        ({"decoder_layers": None}, "decoder_layers is None"),
        ({"encoder_attention_heads": 7}, "cannot be cut into encoder_attention_heads 7"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no', but must be true or false."),
        ({"share_encoder_decoder_embeddings": 0}, "share_encoder_decoder_embeddings is 0, but"),
        (
            {"bad_words_ids": 7},
            "bad_words_ids is 7, but must be an array in which each value is an array",
        ),
        (
            {"bad_words_ids": [7]},
            "bad_words_ids is [7], but must be an array in which each value is an array",
        ),
        ({"normalize_before": True}, "normalize_before is set"),
    ],
)
def test_configurations_of_an_encoder_decoder_that_are_refused(
    refused, write_config, kind, raw, says
):
    path = write_config({"model_type": kind, **raw})
    assert f"{path}: " in (sentence := refused(path))
    assert says in sentence


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("gpt2", "--context", 1025), "--context must be between 1 and 1024, the positions that"),
        (("gpt2", "--context", 0), "but is 0."),
        (("bert-base-uncased", "--context", 513), "--context must be between 1 and 512"),
        (("bert-base-uncased", "--context", -1), "but is -1."),
        (("bart-base", "--source", 1025), "--source must be between 1 and 1024, the positions"),
        (("bart-base", "--source", -3), "but is -3."),
        (("gpt2", "--source", 5), "but gpt2 is a gpt2; leave it out."),
        (("bert-base-uncased", "--source", 5), "--source is what an encoder reads for a decoder"),
        (("gpt2", "--batch", 0), "--batch must be at least 1, but is 0."),
        (("bert-base-uncased", "--batch", -2), "--batch must be at least 1, but is -2."),
        (("gpt2", "--json", "--mermaid"), "choose one"),
        (("nowhere/config.json",), "no file nowhere/config.json"),
        (("weights/nowhere",), "weights/nowhere"),
        (("",), "empty"),
        ((".",), "config.json"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(refused, arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert says in refused(*arguments)


@pytest.mark.parametrize("name", command.PRESETS)
def test_lines_fit_a_terminal_of_100_columns(run, name):
    code, out, err = run(name)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) > (60 if "gpt2" in name else 20)
    assert max(map(width, lines)) <= 100


def test_help_names_what_is_built_in(capsys):
    with pytest.raises(SystemExit):
        command.main(["--help"])
    said = "".join(capsys.readouterr().out.split())  # names are broken at their hyphens
    for name in command.PRESETS:
        assert name in said


def test_python_m():
    argv = [sys.executable, "-W", "error", "-m", "npgpt.describe", "gpt2"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, encoding="utf-8")
    assert "124,439,808" in done.stdout


@pytest.mark.real
def test_real_configurations(described, data_dir):
    totals = {"llm-viz": 85_728, "slm4096": 211_712, "capp-gpt": 236_224, "bart-g2p-us": 751_488}
    for name, total in totals.items():
        folder = data_dir / "checkpoints" / name
        assert described(folder)["parameters"]["total"] == total
        assert npgpt.from_pretrained(folder).num_params() == total
