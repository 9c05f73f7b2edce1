"""Llama against transformers, live: logits, every gradient, frequencies, and greedy text."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from npgpt.models.llama.config import LlamaConfig
from npgpt.models.llama.model import Llama
from tests.goldens.make_gpt2 import random_input
from tests.goldens.make_llama import (
    LLAMA3,
    SIZES,
    all_in_float64,
    reference_model,
    reference_params,
    reference_values,
)
from tests.gradcheck import relative_error

pytestmark = [pytest.mark.hf, pytest.mark.usefixtures("hf")]

# name -> options, lengths of the rows, the side that is padded
CASES: dict[str, tuple[dict[str, Any], list[int], str]] = {
    "every head its own keys": ({"num_key_value_heads": 6}, [7, 7], "right"),
    "two shared heads": ({}, [5, 5, 5], "right"),
    "one shared head": ({"num_key_value_heads": 1}, [9], "right"),
    "number of shared heads left out": ({"num_key_value_heads": None}, [6], "right"),
    "tied": ({"tie_word_embeddings": True}, [8], "right"),
    "wide heads": ({"head_dim": 14}, [8], "right"),
    "gelu, one token": ({"hidden_act": "gelu"}, [1], "right"),
    "eps": ({"rms_norm_eps": 1e-2}, [6, 6], "right"),
    "fast": ({"rope_theta": 10.0}, [16, 16], "right"),
    "linear": ({"rope_scaling": {"type": "linear", "factor": 2.5}}, [16], "right"),
    "dynamic, short": ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, [12], "right"),
    "dynamic, long": ({"rope_scaling": {"rope_type": "dynamic", "factor": 3.0}}, [29, 21], "left"),
    "llama3": ({"rope_scaling": LLAMA3, "rope_theta": 500.0, "head_dim": 16}, [16], "right"),
    "left padding": ({"tie_word_embeddings": True}, [9, 3, 6], "left"),
    "right padding": ({"num_key_value_heads": 3}, [2, 8], "right"),
    "one layer, left padding": ({"num_hidden_layers": 1, "vocab_size": 31}, [1, 16], "left"),
}


def both(options, lengths, side, dtype="float64", context=all_in_float64):
    """What npgpt computes and what transformers does, by name, for one random model and input."""
    options = {**SIZES, **options}
    ids, targets, attention_mask = random_input(
        lengths, side, options["vocab_size"], np.random.default_rng(5)
    )
    with context():
        reference = reference_model(options, 5, dtype)
        want = reference_values(reference, ids, targets, attention_mask)
    model = Llama(LlamaConfig.from_dict(reference.config.to_dict()), reference_params(reference))
    logits = model(ids, attention_mask)
    loss, grads = model.loss_and_grads(ids, targets, attention_mask)
    got: dict[str, Any] = {
        "logits": logits,
        "loss": loss,
        **{"grad." + name: grads[name] for name in grads},
    }
    real = attention_mask == 1
    got["logits"], want["logits"] = got["logits"][real], want["logits"][real]
    assert got.keys() == want.keys()
    return got, want


def worst(got, want):
    """The largest relative error of all tensors, and which it is."""
    return max((relative_error(got[name], want[name]), name) for name in want)


@pytest.mark.parametrize("case", CASES)
def test_float64(case) -> None:
    """transformers' own code, but with float64 where it would go over to float32."""
    got, want = both(*CASES[case])
    assert worst(got, want) < (1e-12, "")


@pytest.mark.parametrize("case", [name for name in CASES if CASES[name][2] == "right"])
def test_transformers_as_it_is(case) -> None:
    """RMSNorm, softmax and angles in float32, the rest in float64.

    Not with padding on the left: the mask's 1e308 is infinite in float32, and the padding's NaN
    gets into every gradient.
    """
    got, want = both(*CASES[case], context=nullcontext)
    assert worst(got, want) < (2e-6, "")


@pytest.mark.parametrize("case", ["two shared heads", "left padding", "llama3"])
def test_float32(case) -> None:
    got, want = both(*CASES[case], dtype="float32", context=nullcontext)
    assert {value.dtype for value in got.values()} == {np.dtype(np.float32)}
    assert relative_error(got["logits"], want["logits"]) < 5e-6
    assert worst(got, want) < (2e-5, "")


@pytest.mark.parametrize("options", [{"rope_theta": 500.0}, {"rope_scaling": LLAMA3}])
def test_one_small_error_would_be_seen(options) -> None:
    got, _ = both(options, [7, 7], "right")
    _, other = both({}, [7, 7], "right")
    assert relative_error(got["logits"], other["logits"]) > 1e-3


@pytest.mark.parametrize("side", ["alone", "left"])
def test_greedy_text_with_a_cache(side) -> None:
    import torch

    reference = reference_model({**SIZES, "rope_scaling": LLAMA3}, 5)
    for table in (reference.lm_head, reference.model.embed_tokens):
        table.weight.data.normal_()  # no row three times larger, which would often win
    model = Llama(LlamaConfig.from_dict(reference.config.to_dict()), reference_params(reference))
    lengths = [5] if side == "alone" else [5, 2, 4]
    ids, _, attention_mask = random_input(lengths, "left", 19, np.random.default_rng(6))
    want = reference.float().generate(
        torch.tensor(ids),
        attention_mask=torch.tensor(attention_mask),
        max_new_tokens=11,
        do_sample=False,
        use_cache=True,
        pad_token_id=0,
    )[:, 5:]
    got = np.stack(list(model.generate(ids, 11, attention_mask=attention_mask)), axis=1)
    assert got.tolist() == want.tolist()
    assert len(set(got[0].tolist())) > 3
