"""RoBERTa and DistilBERT beside transformers, and known faults of a port of theirs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.builders.bert import random_bert
from tests.compare.ports import port, report, run, stations_of

CASES: dict[str, dict[str, Any]] = {
    "roberta": {"pooler": False},
    "roberta, untied": {"pooler": False, "tie_word_embeddings": False, "type_vocab_size": 1},
    "roberta, bare": {"mlm_head": False},
    "xlm-roberta": {"pooler": False},
    "distilbert": {},
    "distilbert, untied": {"tie_word_embeddings": False, "hidden_act": "relu"},
    "distilbert, bare": {"mlm_head": False},
}


def compared(folder: Any, model: Any, *options: str) -> tuple[dict[str, Any], str]:
    model.save_pretrained(folder)
    gradients = ["--gradients"] if model.has_mlm_head else []
    code, out, err = run("--model", folder, "--dtype", "float64", *gradients, *options, "--json")
    found: dict[str, Any] = json.loads(out)
    assert code == 0, found["first_beyond"] or found["first_gradient_beyond"]
    rows = [*found["stations"], *found["arriving"], *found["gradients"]]
    assert all(row["relative"] < 1e-11 for row in rows if ".k_lin.bias" not in row["station"])
    return found, err


@pytest.mark.parametrize("case", CASES)
def test_every_station_and_gradient(hf, rng, tmp_path, case) -> None:
    kind = case.partition(",")[0]
    model = random_bert(rng, np.float32, model_type=kind, **CASES[case])
    found, err = compared(tmp_path, model, "--ids", "3 7 4 7 5 9 2")
    assert (found["missing"], found["unknown"], err) == ([], [], "")
    assert len(found["stations"]) >= 1 + 12 * model.config.num_hidden_layers
    assert len(found["gradients"]) == (len(model.params) if model.has_mlm_head else 0)


def test_a_robertas_pooler_beside_its_head_is_named_as_missing(hf, rng, tmp_path) -> None:
    """transformers has no class with both."""
    model = random_bert(rng, np.float32, model_type="roberta")
    found, _ = compared(tmp_path, model, "--ids", "3 7 4 7 5 9 2")
    assert "pooler" in found["missing"]


@pytest.mark.filterwarnings("default:the text has the padding token")
def test_the_rows_of_a_robertas_padding_token_get_gradients_there_too(hf, rng, tmp_path) -> None:
    model = random_bert(rng, np.float32, model_type="roberta", pooler=False)
    _, err = compared(tmp_path, model, "--ids", "3 1 4 1 5")
    assert "the text has the padding token, id 1, whose row" in err


@pytest.mark.parametrize("kind", ["roberta", "distilbert"])
def test_another_activation_is_recognised(rng, tmp_path, kind) -> None:
    model = random_bert(rng, np.float32, model_type=kind, pooler=False)
    model.save_pretrained(tmp_path)
    found = report(tmp_path, stations_of(port(model, hidden_act="gelu_new")))
    assert "gelu_new instead of gelu" in json.dumps(found)
