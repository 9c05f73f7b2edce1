"""Dropout, in every architecture: where it acts in a training pass, how often, with which p."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npgpt.ops.dropout import dropout_forward
from tests.builders.bert import random_bert
from tests.builders.gpt2 import random_gpt2
from tests.builders.gpt_neo import random_gpt_neo
from tests.builders.llama import random_llama
from tests.builders.transformer import random_transformer
from tests.goldens import ARCHITECTURES, reference_values
from tests.gradcheck import check_close

B, T, S = 16, 10, 7  # of an encoder-decoder, S the source
PROBS, WIDE = 0.4, 0.15  # of the attention weights, of what is d wide

# kind -> builder, options, and p and shape of every site, in order; the builders' d is 12, or 18
SITES: dict[str, tuple[Any, dict[str, float], list[Any]]] = {
    "gpt2": (
        random_gpt2,
        {"embd_pdrop": 0.25, "attn_pdrop": PROBS, "resid_pdrop": WIDE},
        [
            (0.25, (B, T, 12)),  # embeddings
            *2 * [(PROBS, (B, 3, T, T)), (WIDE, (B, T, 12)), (WIDE, (B, T, 12))],
        ],
    ),
    "gpt_neo": (
        random_gpt_neo,
        {"embed_dropout": 0.25, "attention_dropout": PROBS, "resid_dropout": WIDE},
        [
            (0.25, (B, T, 12)),  # embeddings
            *2 * [(PROBS, (B, 3, T, T)), (WIDE, (B, T, 12)), (WIDE, (B, T, 12))],
        ],
    ),
    "llama": (
        random_llama,
        {"attention_dropout": PROBS},
        2 * [(PROBS, (B, 3, 2, T, T))],
    ),
    "bert": (
        random_bert,
        {"attention_probs_dropout_prob": PROBS, "hidden_dropout_prob": WIDE},
        [
            (WIDE, (B, T, 12)),  # embeddings
            *2 * [(PROBS, (B, 3, T, T)), (WIDE, (B, T, 12)), (WIDE, (B, T, 12))],
        ],
    ),
    "transformer": (
        random_transformer,
        {"attention_dropout": PROBS, "dropout": WIDE},
        [
            (WIDE, (B, S, 12)),  # embeddings of the source
            *2 * [(PROBS, (B, 3, S, S)), (WIDE, (B, S, 12)), (WIDE, (B, S, 12))],
            (WIDE, (B, T, 12)),  # embeddings of the target
            *3
            * [
                (PROBS, (B, 2, T, T)),
                (WIDE, (B, T, 12)),
                (PROBS, (B, 2, T, S)),  # the source
                (WIDE, (B, T, 12)),
                (WIDE, (B, T, 12)),
            ],
        ],
    ),
}
CASES: list[tuple[str, dict[str, Any]]] = [(kind, {}) for kind in SITES]
CASES += [("transformer", {"model_type": dialect}) for dialect in ("bart", "marian")]
CASES += [("bert", {"model_type": "distilbert"})]
CASES += [("bert", {"model_type": "roberta", "max_position_embeddings": T + 2})]


@pytest.mark.parametrize(("kind", "more"), CASES, ids=str)
def test_every_site_and_its_probability(kind, more, rng, monkeypatch) -> None:
    builder, options, sites = SITES[kind]
    model = builder(rng, **options, **more)
    drawn = []

    def counted(x: np.ndarray, *, p: float, rng: Any) -> tuple[np.ndarray, Any]:
        y, saved = dropout_forward(x, p=p, rng=rng)
        drawn.append((p, x.shape, (y[x != 0] == 0).mean()))
        return y, saved

    for name, module in [*sys.modules.items()]:
        if name.startswith("npgpt.") and hasattr(module, "dropout_forward"):
            monkeypatch.setattr(module, "dropout_forward", counted)
    ids, targets = rng.integers(3, 12, (B, S if kind == "transformer" else T)), np.full((B, T), 5)
    model.loss_and_grads(ids, targets, rng=rng)
    assert [(p, shape) for p, shape, _ in drawn] == sites
    for p, shape, silent in drawn:
        spread = math.sqrt(p * (1 - p) / (math.prod(shape) / 2))  # a causal half is 0 by itself
        assert silent == pytest.approx(p, abs=5 * spread)
    drawn.clear()
    model.loss_and_grads(ids, targets)
    assert all(silent == 0 for *_, silent in drawn)


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
@pytest.mark.parametrize(
    ("kind", "case"),
    [
        (kind, case)
        for kind, module in ARCHITECTURES.items()
        for case, (options, *_) in module.CASES.items()
        if options.get("kind") != "BertModel"  # whose outputs come without a training pass
    ],
)
def test_transformers_drops_the_same_numbers(kind, case, monkeypatch) -> None:
    """Both draw their masks, in turn, from generators in the same state: a site of another place,
    order or probability changes the loss or a gradient."""
    import torch

    architecture, options = ARCHITECTURES[kind], SITES[kind][1]
    first, *rows = architecture.CASES[case]
    given = architecture.random_input(first, *rows, np.random.default_rng(5))
    theirs = np.random.default_rng(3)

    def drop(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if not training or p == 0:
            return x
        return x * torch.tensor(theirs.random(x.shape, dtype=np.float32) >= p) / (1 - p)

    monkeypatch.setattr(torch.nn.functional, "dropout", drop)
    with architecture.in_float64():
        reference = architecture.reference_model({**first, **options}, 5).train()
        want = reference_values(architecture, reference, given)
    config = replace(architecture.CONFIG.from_dict(reference.config.to_dict()), **options)
    model = architecture.MODEL(config, architecture.reference_params(reference))
    ours = np.random.default_rng(3)
    got = architecture.computed(model, given, ours)
    assert ours.random() == theirs.random() != np.random.default_rng(3).random()
    del got["logits"], want["logits"]  # npgpt's are made without dropout
    check_close(got, want, 1e-11)
