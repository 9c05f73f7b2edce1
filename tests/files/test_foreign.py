"""What npgpt does not read is called what it is, before anything else is said about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt.__main__ import module_of
from npgpt.files.foreign import SCALES
from npgpt.files.safetensors_file import read_tensors
from tests.builders.bert import random_bert, write_tiny_bert
from tests.builders.checkpoints import change
from tests.builders.gpt2 import random_gpt2, write_tiny_gpt2
from tests.builders.llama import random_llama, write_tiny_llama
from tests.builders.transformer import random_transformer

PICKLE = "is a pickle, which could run any code and is not opened: convert it to safetensors"
# A file in the place of model.safetensors -> what is said of it.
FILES = {
    "pytorch_model.bin": PICKLE,
    "pytorch_model-00001-of-00002.bin": PICKLE,
    "pytorch_model.bin.index.json": PICKLE,
    "model.pt": PICKLE,
    "model.pth": PICKLE,
    "model.ckpt": PICKLE,
    "consolidated.00.pth": "is in its maker's own layout: take the model as converted for",
    "consolidated.safetensors": "is in its maker's own layout",
    "adapter_model.safetensors": "is an adapter (LoRA), not a model: merge it into its base model",
    "adapter_model.bin": "is an adapter (LoRA)",
    "pytorch_model.safetensors": "is not called model.safetensors: rename it, if it is all of",
    "model.fp16.safetensors": "is not called model.safetensors",
    "diffusion_pytorch_model.safetensors": "is a part of a diffusion model",
    "diffusion_pytorch_model.bin": "is a part of a diffusion model",
    "model-00001-of-00002.safetensors": "is a part of the weights, and "
    "model.safetensors.index.json, which says what is where, is missing: download it too",
    "tf_model.h5": "is of another framework: have transformers 4 load it (from_tf=True)",
    "flax_model.msgpack": "is of another framework: have transformers 4 load it (from_flax=True)",
    "model.onnx": "is a program that computes a model",
    "q8_0.gguf": "is a model by itself: name that file",
}
NO_WEIGHTS = ("training_args.bin", "optimizer.pt", "optimizer.bin", "scheduler.pt", "rng_state.pth")
QUANTISED = r"the weights are quantised .*, which npgpt does not read: name the model that they"


def refusal(place: Path) -> str:
    with pytest.raises((FileNotFoundError, ValueError)) as caught:
        npgpt.from_pretrained(place)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    assert not text.endswith("..")
    return text


@pytest.mark.parametrize(("name", "words"), FILES.items())
def test_other_weights_in_a_folder(tmp_path, name, words) -> None:
    (tmp_path / name).write_bytes(b"")
    for file in NO_WEIGHTS:
        (tmp_path / file).write_bytes(b"")
    text = refusal(tmp_path)
    assert text.startswith(f"{tmp_path / 'config.json'} is missing; its {name} {words}")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', "utf-8")
    wanted = "has neither model.safetensors nor model.safetensors.index.json"
    assert refusal(tmp_path).startswith(f"{tmp_path} {wanted}; its {name} {words}")


def test_what_lies_beside_weights_is_not_taken_for_them(tmp_path) -> None:
    write_tiny_gpt2(tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    npgpt.from_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    assert refusal(tmp_path).endswith("is missing; a model's folder has it beside the weights.")
    for name in ("model.safetensors", "adapter_model.safetensors"):
        (tmp_path / name).unlink()
    for name in NO_WEIGHTS:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', "utf-8")
    assert refusal(tmp_path).endswith("nor model.safetensors.index.json.")


@pytest.mark.parametrize("name", [n for n in FILES if not n.endswith("gguf")])
def test_a_file_named_itself(tmp_path, name) -> None:
    (tmp_path / name).write_bytes(b"")
    text = refusal(tmp_path / name)
    words = FILES[name]
    if name.endswith(".safetensors"):
        words = "is a file; name the folder that it is in."
    assert text.startswith(f"{str(tmp_path / name)!r} {words}")


def test_describe_does_not_take_weights_for_a_configuration(tmp_path, run_command) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"")
    code, out, err = run_command(module_of("describe"), path)
    assert (code, out) == (2, "")
    assert err.endswith(f"'{path}' is a file; name the folder that it is in.\n")


def test_a_missing_file_is_not_asked_of_the_hub(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("model.safetensors", "folder/model.safetensors"):
        assert refusal(Path(name)).startswith(f"There is no model {name!r}: looked for the folder")


@pytest.mark.parametrize(
    ("settings", "how"),
    [
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantization_config gptq"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config fp8"),
        ({"quantization_config": {"load_in_4bit": True}}, "quantization_config"),
        ({"quantization": {"bits": 4, "group_size": 64}}, "quantization"),
    ],
)
def test_config_json_says_quantised(tmp_path, run_command, settings, how) -> None:
    """Weights are not even needed for this, so a model from the hub is not downloaded first."""
    change(write_tiny_llama(tmp_path), **settings)
    (tmp_path / "model.safetensors").unlink()
    sentence = f"config.json: the weights are quantised ({how}), which npgpt does not read"
    assert sentence in refusal(tmp_path)
    for name in ("generate", "trace", "compare"):
        code, out, err = run_command(module_of(name), "--ids", "1 2", "--model", tmp_path)
        assert (code, out) == (2, "")
        assert sentence in err
    code, out, err = run_command(module_of("describe"), tmp_path)
    assert (code, err) == (0, "")
    assert "parameters" in out


@pytest.mark.parametrize("key", ["quantization_config", "quantization"])
def test_a_setting_that_is_null_says_nothing(tmp_path, key) -> None:
    npgpt.from_pretrained(change(write_tiny_llama(tmp_path), **{key: None}))


LINEARS: dict[str, tuple[Any, str]] = {
    "gpt2": (write_tiny_gpt2, "transformer.h.0.mlp.c_fc"),
    "llama": (write_tiny_llama, "model.layers.0.mlp.up_proj"),
    "bert": (write_tiny_bert, "bert.encoder.layer.0.output.dense"),
}


@pytest.mark.parametrize("kind", LINEARS)
@pytest.mark.parametrize(
    ("gone", "added"),
    [
        ((".weight",), {".weight": "u4", ".scales": "f4", ".biases": "f4"}),  # MLX
        ((".weight",), {".qweight": "i4", ".qzeros": "i4", ".scales": "f2", ".g_idx": "i4"}),
        ((".weight",), {".weight": "u1", ".weight.absmax": "f4", ".weight.quant_map": "f4"}),
        ((".weight",), {".weight": "u1", ".weight.quant_state.bitsandbytes__nf4": "u1"}),
        ((), {".SCB": "f4"}),
        ((), {".weight_scale_inv": "f4"}),
        ((".weight",), {".weight_packed": "i4", ".weight_scale": "f4"}),
    ],
)
def test_names_of_tensors_say_quantised(tmp_path, kind, gone, added) -> None:
    """Where config.json says nothing of it, and before shapes are compared."""
    write, linear = LINEARS[kind]
    tensors: dict[str, Any] = dict.fromkeys(linear + end for end in gone)
    tensors |= {linear + end: np.zeros((3, 1), dtype) for end, dtype in added.items()}
    change(write(tmp_path), tensors)
    text = refusal(tmp_path)
    assert text.startswith(f"{tmp_path / 'model.safetensors'}: the weights are quantised (it has ")
    assert ", which npgpt does not read: name the model that they were made from" in text


def test_no_plain_parameter_has_such_a_name(rng, tmp_path) -> None:
    models = [random_gpt2(rng), random_llama(rng), random_bert(rng)]
    models += [random_transformer(rng, model_type=kind) for kind in ("bart", "marian")]
    for n, model in enumerate(models):
        model.save_pretrained(tmp_path / str(n))
        for name in read_tensors(tmp_path / str(n) / "model.safetensors"):
            assert not name.endswith(SCALES)


def test_a_hub_model_is_refused_by_its_config(tmp_path, monkeypatch) -> None:
    """Nothing but config.json has been fetched when the sentence comes."""
    from npgpt.files import hub

    (tmp_path / "config.json").write_text(json.dumps({"quantization": {"bits": 4}}), "utf-8")
    asked: list[str] = []

    def get(self: Any, file: str) -> Path:
        asked.append(file)
        return tmp_path / file

    monkeypatch.setattr(hub.Repository, "get", get)
    with pytest.raises(ValueError, match=QUANTISED):
        npgpt.from_pretrained("owner/quantised")
    assert asked == ["config.json"]
