"""BERT against transformers, live: outputs and every gradient, with and without heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npgpt.models.bert.config import BERTConfig
from npgpt.models.bert.model import BERT
from tests.goldens.make_bert import arrays, random_input, reference_model, reference_values
from tests.gradcheck import relative_error
from tests.models.tiny_bert import worst

pytestmark = [pytest.mark.hf, pytest.mark.usefixtures("hf")]

SIZES = {
    "vocab_size": 31,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 16,
}
MASKED, BARE = "BertForMaskedLM", "BertModel"

# name -> class, options, lengths of the rows, the side that is padded
CASES: dict[str, tuple[str, dict[str, Any], list[int], str]] = {
    "bert": (MASKED, {}, [7, 7], "right"),
    "padding": (MASKED, {"num_attention_heads": 2}, [2, 9, 5], "right"),
    "padding on the left": (
        MASKED,
        {"intermediate_size": 10, "pad_token_id": None},
        [8, 3],
        "left",
    ),
    "untied, three types": (
        MASKED,
        {"tie_word_embeddings": False, "type_vocab_size": 3},
        [6, 4],
        "right",
    ),
    "relu, one head": (MASKED, {"hidden_act": "relu", "num_attention_heads": 1}, [9], "right"),
    "gelu_new, eps": (MASKED, {"hidden_act": "gelu_new", "layer_norm_eps": 1e-2}, [5], "right"),
    "one token": (MASKED, {"hidden_act": "silu"}, [1, 1, 1], "right"),
    "pooler": (BARE, {"pad_token_id": None}, [7, 5], "right"),
    "pooler, padding": (BARE, {"hidden_size": 20, "hidden_act": "tanh"}, [3, 8, 1], "right"),
    "pooler, full context": (BARE, {"num_hidden_layers": 1, "type_vocab_size": 1}, [16], "right"),
}


def both(kind, options, lengths, side, dtype="float64"):
    """What npgpt computes and what transformers does, by name, for one random model and input."""
    options = {**SIZES, **options}
    given = random_input(lengths, side, options, np.random.default_rng(5))
    given = {n: a.astype(dtype) if n.startswith("d") else a for n, a in given.items()}
    reference = reference_model(kind, options, 5, dtype)
    model = BERT(BERTConfig.from_dict(reference.config.to_dict()), arrays(reference))
    context: dict[str, Any] = {
        name: given[name] for name in ("ids", "attention_mask", "token_type_ids")
    }
    out = model.forward(**context)
    if kind == MASKED:
        loss, grads = model.loss_and_grads(targets=given["targets"], **context)
        got: dict[str, Any] = {"logits": out.logits, "loss": loss}
    else:
        grads = model.backward(None, out.saved, dhidden=given["dhidden"], dpooled=given["dpooled"])
        got = {"hidden": out.hidden, "pooled": out.pooled}
    got |= {"grad." + name: grad for name, grad in grads.items()}
    want = reference_values(reference, given)
    return got, want


@pytest.mark.parametrize("case", CASES)
def test_float64(case) -> None:
    assert worst(*both(*CASES[case])) < (1e-12, "")


@pytest.mark.parametrize("case", ["bert", "padding", "pooler, padding"])
def test_float32(case) -> None:
    got, want = both(*CASES[case], dtype="float32")
    assert {value.dtype for value in got.values()} == {np.dtype(np.float32)}
    assert worst(got, want) < (2e-5, "")


def test_one_small_error_would_be_seen() -> None:
    """The other GELU, which differs by 5e-4 at most, is far outside the tolerance."""
    exact, _ = both(*CASES["bert"])
    _, tanh = both(MASKED, {"hidden_act": "gelu_new"}, [7, 7], "right")
    assert relative_error(exact["logits"], tanh["logits"]) > 1e-5


def test_bert_base_with_random_weights() -> None:
    """109,482,240 parameters made by transformers, float32, a text of 64 tokens."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    reference = BertModel(BertConfig(attn_implementation="eager")).eval()
    model = BERT(BERTConfig.from_dict(reference.config.to_dict()), arrays(reference))
    assert model.num_params() == 109_482_240
    ids = np.random.default_rng(0).integers(0, 30522, 64)
    with torch.no_grad():
        want = reference(torch.tensor(ids)[None])
    out = model.forward(ids)
    assert relative_error(out.hidden, want.last_hidden_state[0].numpy()) < 1e-5
    assert out.pooled is not None
    assert relative_error(out.pooled, want.pooler_output[0].numpy()) < 1e-5
