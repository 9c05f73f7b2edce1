"""npgpt against transformers, live: every station, the loss and every gradient."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npgpt.compare.reference import hf_stations
from npgpt.models.gpt2.checkpoint import save_checkpoint
from npgpt.models.gpt2.config import GPT2Config, init_params
from tests.compare.ports import run
from tests.models.small_checkpoints import SMALL, random_params, write_checkpoint
from tests.tiny import write_tiny_model

pytestmark = pytest.mark.hf

OPTIONS: list[dict[str, Any]] = [
    {},
    {"n_embd": 12, "n_head": 1, "n_layer": 4, "n_inner": None},
    {"activation_function": "gelu", "tie_word_embeddings": False},
    {"activation_function": "gelu_pytorch_tanh", "layer_norm_epsilon": 1e-3},
    {"activation_function": "relu", "scale_attn_weights": False},
    {"activation_function": "silu", "scale_attn_by_inverse_layer_idx": True},
    {"activation_function": "tanh", "n_inner": 3, "vocab_size": 50, "n_positions": 9},
    {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True, "n_layer": 3},
]


def trained_like(config: GPT2Config) -> dict[str, np.ndarray]:
    """Gains up to 10, biases, and a row in every matrix that is 50 times larger."""
    rng = np.random.default_rng(3)
    params = init_params(config, rng, np.float64)
    for name, param in params.items():
        if param.ndim == 2:
            param[rng.integers(len(param))] *= 50
        else:
            param += 0.1 * rng.standard_normal(param.shape)
        if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")):
            param[rng.integers(len(param))] = 10
    return params


@pytest.mark.parametrize("params_of", [lambda c: random_params(c, np.float64), trained_like])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_float64_agrees_to_nine_digits(hf, tmp_path, options, params_of):
    config = replace(SMALL, **options)
    save_checkpoint(tmp_path, config, params_of(config))
    arguments = ("--ids", "3 1 4 1 5", "--model", tmp_path, "--dtype", "float64", "--gradients")
    code, out, err = run(*arguments, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    rows = [*found["stations"], *found["gradients"]]
    assert len(rows) == 4 * config.n_layer + 4 + len(params_of(config))
    assert {row["station"]: row["relative"] for row in rows if row["relative"] > 1e-9} == {}
    assert found["missing"] == found["unknown"] == []


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_float32_is_within_the_default_tolerance(hf, tmp_path, options):
    config = replace(SMALL, **options)
    params = {name: p.astype(np.float32) for name, p in trained_like(config).items()}
    save_checkpoint(tmp_path, config, params)
    code, out, err = run("--ids", "3 1 4 1 5", "--model", tmp_path, "--gradients")
    assert (code, err) == (0, ""), out


def test_two_tokens_leave_most_of_the_gradient_zero(hf, tmp_path):
    """Only position 0 has a target; it attends to itself alone, so queries and keys get nothing."""
    save_checkpoint(tmp_path, SMALL, random_params())
    for dtype in ("float32", "float64"):
        arguments = ("--ids", "3 1", "--model", tmp_path, "--gradients", "--dtype", dtype)
        assert run(*arguments)[0] == 0


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attention_upcast_by_transformers(hf, tmp_path, dtype):
    save_checkpoint(
        tmp_path, replace(SMALL, other={"reorder_and_upcast_attn": True}), random_params()
    )
    code, _, err = run("--ids", "3 1 4", "--model", tmp_path, "--dtype", dtype, "--gradients")
    assert code == 0
    assert ("reorder_and_upcast_attn is switched off" in err) == (dtype == "float64")


def test_text_and_the_table(hf, tmp_path):
    folder = write_tiny_model(tmp_path)
    code, out, err = run("The cat", "--model", folder, "--gradients")
    assert (code, err) == (0, "")
    assert "against hf, 7 tokens" in out
    assert "all 12 stations are within tolerance\nall 28 gradients are within tolerance" in out


def test_a_checkpoint_in_the_other_orientation_is_not_guessed_at(hf, tmp_path):
    """npgpt sees that the matrices are [out, in]; transformers does not."""
    turned = {
        f"transformer.{n}": p.T if n.startswith("h.") else p for n, p in random_params().items()
    }
    write_checkpoint(tmp_path, turned)
    code, out, err = run("--ids", "3 1 4", "--model", tmp_path)
    assert (code, out) == (2, "")
    assert "transformers finds missing or misshapen there" in err
    assert "h.0.attn.c_attn.weight" in err


def test_a_folder_that_transformers_cannot_open(hf, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    with pytest.raises(ValueError, match="transformers cannot load it"):
        hf_stations(tmp_path, np.array([1, 2]), dtype="float32", gradients=False)


@pytest.mark.real
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("slm4096", None),
        ("capp-gpt", "1 7 20 33 8 8 45 2 50 51"),
        ("llm-viz", "2 1 0 1 1 2 0 1 1 1 2"),
    ],
)
def test_trained_checkpoints(hf, data_dir, name, ids, dtype):
    given = ["Q: What is SLM?\n"] if ids is None else ["--ids", ids]
    folder = data_dir / "checkpoints" / name
    code, out, err = run(*given, "--model", folder, "--dtype", dtype, "--gradients")
    assert (code, err) == (0, ""), out
    assert "argmax: the same at" in out
