"""BERT checkpoints go to transformers and come from it unchanged, with equal outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt.models.bert.checkpoint import load_bert
from npgpt.models.bert.model import BERT
from tests.builders.bert import SIZES, random_bert
from tests.builders.checkpoints import assert_same
from tests.goldens.bert import reference_model, reference_params
from tests.gradcheck import relative_error

pytestmark = [pytest.mark.hf, pytest.mark.usefixtures("hf")]

IDS = [3, 1, 4, 1, 5]


def outputs(model: Any) -> np.ndarray:
    """Logits, or hidden states behind each other with the pooled vector."""
    import torch

    with torch.no_grad():
        out = model(torch.tensor([IDS]))
    if hasattr(out, "logits"):
        return out.logits[0].numpy()
    return np.concatenate([out.last_hidden_state[0].numpy(), out.pooler_output.numpy()])


def our_outputs(model: BERT) -> np.ndarray:
    out = model.forward(IDS)
    if out.logits is not None:
        return out.logits
    assert out.pooled is not None
    return np.concatenate([out.hidden, out.pooled[None]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("BertForMaskedLM", {"mlm_head": True, "pooler": False}),
        (
            "BertForMaskedLM",
            {"mlm_head": True, "pooler": False, "tie_word_embeddings": False, "hidden_act": "relu"},
        ),
        ("BertModel", {"mlm_head": False, "pooler": True}),
    ],
)
def test_transformers_loads_what_is_saved(tmp_path, rng, kind, options, dtype):
    import torch
    import transformers

    model = random_bert(rng, dtype, **options)
    model.save_pretrained(tmp_path)
    theirs, info = getattr(transformers, kind).from_pretrained(
        tmp_path, output_loading_info=True, dtype="auto", attn_implementation="eager"
    )
    assert not any(info.values()), info
    assert theirs.dtype == getattr(torch, dtype)
    assert_same(reference_params(theirs), model.params)
    error = relative_error(our_outputs(model), outputs(theirs.eval()))
    assert error < {"float32": 1e-5, "float64": 1e-13}[dtype]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertModel"])
def test_what_transformers_saves_is_loaded(tmp_path, kind, tied):
    reference = reference_model({**SIZES, "kind": kind, "tie_word_embeddings": tied}, 3, "float32")
    reference.save_pretrained(tmp_path)
    model = BERT(*load_bert(tmp_path))
    assert_same(model.params, reference_params(reference))
    assert relative_error(our_outputs(model), outputs(reference)) < 1e-5


def test_both_heads_are_what_bert_for_pretraining_saves(tmp_path):
    """Its next-sentence classifier is no parameter; the rest comes."""
    reference = reference_model({**SIZES, "kind": "BertForPreTraining"}, 3, "float32")
    reference.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=r"on saving: cls\.seq_relationship\.bias, cls\.seq_"):
        params = load_bert(tmp_path)[1]
    wanted = reference_params(reference)
    assert_same(params, {n: a for n, a in wanted.items() if "seq_relationship" not in n})


@pytest.mark.filterwarnings("ignore:.*kept on saving")
@pytest.mark.parametrize(
    "kind",
    [
        "BertForPreTraining",
        "BertForSequenceClassification",
        "BertForTokenClassification",
        "BertForQuestionAnswering",
        "BertForNextSentencePrediction",
    ],
)
def test_heads_of_tasks_go_there_and_back(tmp_path, kind):
    """transformers finds every tensor as it left it, and the outputs are the same."""
    import torch
    import transformers

    reference = reference_model({**SIZES, "kind": kind, "num_labels": 3}, 3, "float32")
    reference.save_pretrained(tmp_path / "theirs")
    npgpt.from_pretrained(tmp_path / "theirs").save_pretrained(tmp_path / "ours")
    assert transformers.AutoConfig.from_pretrained(tmp_path / "ours").architectures == [kind]
    again, info = getattr(transformers, kind).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(info.values()), info
    before, after = reference.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
