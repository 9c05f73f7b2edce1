"""`python -m npgpt.compare` on a Llama."""

from __future__ import annotations

import json

import numpy as np
import pytest

from npgpt import cli
from npgpt.compare import command as compare
from npgpt.ops.mask import causal_mask
from npgpt.ops.rope import rope_forward
from tests.builders.gguf import llama_file, write_gguf
from tests.builders.llama import random_llama, write_tiny_llama


@pytest.fixture
def folder(tmp_path):
    return write_tiny_llama(tmp_path / "llama")


def compared(capsys, *argv):
    """Exit code of `compare --json`, and what it said."""
    code = cli.run(compare.PROG, compare.main, [*map(str, argv), "--json"])
    said = capsys.readouterr()
    assert said.err == ""
    return code, json.loads(said.out)


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
@pytest.mark.parametrize(
    ("family", "options", "more"),
    [
        ("llama", {"attention_bias": True, "mlp_bias": True}, 7),
        ("mistral", {"sliding_window": 2}, 0),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 2, "max_window_layers": 1}, 3),
        ("qwen3", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, 2),
    ],
)
def test_compare_a_relative_with_transformers(rng, tmp_path, capsys, family, options, more) -> None:
    random_llama(rng, np.float32, model_type=family, **options).save_pretrained(tmp_path)
    argv = ("--ids", "3 1 4 1 5", "--model", tmp_path, "--gradients", "--local")
    code, said = compared(capsys, *argv)
    assert code == 0
    assert said["missing"] == said["unknown"] == []
    assert len(said["stations"]) == 15 * 2 + 4
    assert len(said["gradients"]) == (9 + more) * 2 + 3


@pytest.mark.parametrize(
    ("family", "options", "fault", "named"),
    [
        ("qwen3", {}, ("rms_norm_forward", lambda x, gain, eps: (x * gain, None)), "q_norm"),
        ("qwen2", {}, ("linear_forward", lambda x, W, b: (x @ W, (x, W))), "q_proj"),
        ("mistral", {"sliding_window": 2}, ("window", None), "keys 2 or more back"),
    ],
)
def test_compare_names_what_a_relative_has_of_its_own(
    tmp_path, capsys, monkeypatch, family, options, fault, named
) -> None:
    folder, dump = tmp_path / "model", tmp_path / "port.safetensors"
    write_tiny_llama(folder, model_type=family, **options)
    ids = ("--ids", "3 1 4 1 5", "--model", str(folder))
    with monkeypatch.context() as changed:
        if fault[0] == "window":
            changed.setattr("npgpt.ops.mask.attention_mask_for", lambda T, S, *_: causal_mask(T, S))
        else:
            place = "projection" if fault[0] == "linear_forward" else "grouped_attention"
            changed.setattr(f"npgpt.layers.{place}.{fault[0]}", fault[1])
        assert compare.main([*ids, "--dump", str(dump)]) == 0
    capsys.readouterr()
    assert compare.main([*ids, "--against", str(dump)]) == 1
    assert named in capsys.readouterr().out


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tied", [False, True])
def test_compare_with_transformers(rng, tmp_path, capsys, dtype, tied) -> None:
    random_llama(rng, np.float32, tie_word_embeddings=tied).save_pretrained(tmp_path)
    argv = ("--ids", "3 1 4 1 5", "--model", tmp_path, "--gradients", "--dtype", dtype)
    code, said = compared(capsys, *argv)
    assert code == 0
    assert said["missing"] == said["unknown"] == []
    assert len(said["stations"]) == 15 * 2 + 4
    assert len(said["gradients"]) == 9 * 2 + 3 - tied


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 3, "moe_intermediate_size": 7}


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("family", "options", "stations", "parameters"),
    [
        ("mixtral", {"num_local_experts": 5}, 26 + 4, 2 * (6 + 1 + 15) + 3),
        ("qwen3_moe", EXPERTS, 26 + 4, 2 * (8 + 1 + 12) + 3),
        ("qwen3_moe", {**EXPERTS, "decoder_sparse_step": 2}, 28 + 4, 8 + 3 + (8 + 1 + 12) + 3),
    ],
)
def test_compare_experts_with_transformers(
    rng, tmp_path, capsys, family, options, stations, parameters, dtype
) -> None:
    """Which stacks them in memory and, of the router, shows the weights of those chosen only."""
    random_llama(rng, np.float32, model_type=family, **options).save_pretrained(tmp_path)
    argv = ("--ids", "3 1 4 1 5", "--model", tmp_path, "--gradients", "--local", "--dtype", dtype)
    code, said = compared(capsys, *argv)
    assert code == 0
    assert said["missing"] == said["unknown"] == []
    assert len(said["stations"]) == stations
    assert len(said["gradients"]) == parameters


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (("renormalise_forward", lambda w: (w, (w, 1.0))), "largest, divided by their sum"),
        (
            ("swiglu_forward", lambda x, *W, activation: (x, None)),
            "each expert's gate, up and down",
        ),
    ],
)
def test_compare_names_what_goes_wrong_among_experts(
    tmp_path, capsys, monkeypatch, fault, named
) -> None:
    folder, dump = tmp_path / "model", tmp_path / "port.safetensors"
    write_tiny_llama(folder, model_type="mixtral", num_local_experts=5)
    ids = ("--ids", "3 1 4 1 5", "--model", str(folder))
    with monkeypatch.context() as changed:
        changed.setattr(f"npgpt.layers.mixture.{fault[0]}", fault[1])
        assert compare.main([*ids, "--dump", str(dump)]) == 0
    capsys.readouterr()
    assert compare.main([*ids, "--against", str(dump)]) == 1
    assert named in capsys.readouterr().out


def test_compare_names_the_first_fault_of_a_port(folder, tmp_path, capsys, monkeypatch) -> None:
    """A port that turns neighbours, (0, 1), (2, 3), … instead of i with i + d_h/2."""
    dump = tmp_path / "port.safetensors"
    ids = ("--ids", "3 1 4 1 5", "--model", str(folder))
    with monkeypatch.context() as changed:
        changed.setattr("npgpt.layers.grouped_attention.rope_forward", turn_neighbours)
        assert compare.main([*ids, "--dump", str(dump)]) == 0
    capsys.readouterr()
    code, said = compared(capsys, *ids, "--against", dump)
    assert (code, said["first_beyond"]) == (1, "layers.0.self_attn.q")
    assert compare.main([*ids, "--dump", str(dump)]) == 0
    capsys.readouterr()
    assert compared(capsys, *ids, "--against", dump)[0] == 0


def turn_neighbours(x, *, cos, sin):
    order = np.arange(x.shape[-1]).reshape(-1, 2).T.ravel()
    y, saved = rope_forward(x[..., order], cos=cos, sin=sin)
    return y[..., np.argsort(order)], saved


def test_compare_with_transformers_wants_a_folder(rng, tmp_path) -> None:
    path = write_gguf(tmp_path / "x.gguf", *llama_file(random_llama(rng, np.float32)))
    with pytest.raises(ValueError, match=r"transformers compares a folder, but .*x\.gguf"):
        compare.main(["--ids", "1 2", "--model", str(path)])
    assert (
        compare.main(["--ids", "1 2", "--model", str(path), "--dump", f"{path}.safetensors"]) == 0
    )
