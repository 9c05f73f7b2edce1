"""GPT-2 against transformers, live: logits, every gradient, and greedy text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.gpt2.model import GPT2
from tests.goldens.make_gpt2 import (
    random_input,
    reference_model,
    reference_params,
    reference_values,
)
from tests.gradcheck import relative_error

pytestmark = [pytest.mark.hf, pytest.mark.usefixtures("hf")]

SIZES = {"vocab_size": 31, "n_positions": 16, "n_embd": 24, "n_layer": 3, "n_head": 4}

# name -> options, lengths of the rows, the side that is padded
CASES: dict[str, tuple[dict[str, Any], list[int], str]] = {
    "gpt2": ({}, [7, 7], "right"),
    "gelu, narrow": ({"activation_function": "gelu", "n_inner": 20}, [5, 5, 5], "right"),
    "relu, one head": ({"activation_function": "relu", "n_head": 1}, [9], "right"),
    "silu, one token": ({"activation_function": "silu"}, [1], "right"),
    "tanh, full context": ({"activation_function": "tanh", "n_layer": 1}, [16, 16], "right"),
    "scaled by layer": ({"scale_attn_by_inverse_layer_idx": True}, [8], "right"),
    "unscaled": ({"scale_attn_weights": False}, [8, 8], "right"),
    "both scales": (
        {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True, "n_head": 6},
        [8],
        "right",
    ),
    "untied, eps": ({"tie_word_embeddings": False, "layer_norm_epsilon": 1e-2}, [6, 6], "right"),
    "left padding": ({"activation_function": "gelu_pytorch_tanh"}, [9, 3, 6], "left"),
    "right padding": ({"n_inner": 100, "n_head": 2}, [2, 8], "right"),
    "wide, left padding": ({"n_embd": 60, "vocab_size": 11, "n_head": 12}, [1, 16], "left"),
}


def both(options, lengths, side, dtype="float64"):
    """What npgpt computes and what transformers does, by name, for one random model and input."""
    options = {**SIZES, **options}
    ids, targets, attention_mask = random_input(
        lengths, side, options["vocab_size"], np.random.default_rng(5)
    )
    reference = reference_model(options, 5, dtype)
    model = GPT2(GPT2Config.from_dict(reference.config.to_dict()), reference_params(reference))
    logits = model(ids, attention_mask)
    loss, grads = model.loss_and_grads(ids, targets, attention_mask)
    got: dict[str, Any] = {
        "logits": logits,
        "loss": loss,
        **{"grad." + name: grads[name] for name in grads},
    }
    want = reference_values(reference, ids, targets, attention_mask)
    real = attention_mask == 1
    got["logits"], want["logits"] = got["logits"][real], want["logits"][real]
    assert got.keys() == want.keys()
    return got, want


def worst(got, want):
    """The largest relative error of all tensors, and which it is."""
    return max((relative_error(got[name], want[name]), name) for name in want)


@pytest.mark.parametrize("case", CASES)
def test_float64(case) -> None:
    got, want = both(*CASES[case])
    assert worst(got, want) < (1e-12, "")


@pytest.mark.parametrize("case", ["gpt2", "gelu, narrow", "left padding"])
def test_float32(case) -> None:
    got, want = both(*CASES[case], dtype="float32")
    assert {value.dtype for value in got.values()} == {np.dtype(np.float32)}
    assert relative_error(got["logits"], want["logits"]) < 2e-6
    assert worst(got, want) < (2e-5, "")


def test_reorder_and_upcast_is_the_same_mathematics() -> None:
    """In float32, which is all that transformers computes this path in."""
    got, want = both({"reorder_and_upcast_attn": True}, [7, 7], "right", dtype="float32")
    assert relative_error(got["logits"], want["logits"]) < 2e-6
    assert worst(got, want) < (2e-5, "")


def test_one_small_error_would_be_seen() -> None:
    """The other GELU, which differs by 5e-4 at most, is far outside the tolerance."""
    exact, _ = both({"activation_function": "gelu"}, [7, 7], "right")
    _, tanh = both({"activation_function": "gelu_new"}, [7, 7], "right")
    assert relative_error(exact["logits"], tanh["logits"]) > 1e-5


@pytest.mark.parametrize("side", ["alone", "left"])
def test_greedy_text_with_a_cache(side) -> None:
    import torch

    reference = reference_model({**SIZES, "tie_word_embeddings": False}, 5)
    reference.lm_head.weight.data.normal_()  # no row 50 times larger, which would always win
    model = GPT2(GPT2Config.from_dict(reference.config.to_dict()), reference_params(reference))
    lengths = [5] if side == "alone" else [5, 2, 4]
    ids, _, attention_mask = random_input(lengths, "left", 31, np.random.default_rng(6))
    want = reference.generate(
        torch.tensor(ids),
        attention_mask=torch.tensor(attention_mask),
        max_new_tokens=11,
        do_sample=False,
        use_cache=True,
        pad_token_id=0,
    )[:, 5:]
    got = np.stack(list(model.generate(ids, 11, attention_mask=attention_mask)), axis=1)
    assert got.tolist() == want.tolist()
    assert len(set(got[0].tolist())) > 5


def test_gpt2_small_with_random_weights() -> None:
    """124,439,808 parameters made by transformers, float32, half a context."""
    import torch
    from transformers import GPT2Config as ReferenceConfig
    from transformers import GPT2LMHeadModel

    torch.manual_seed(0)
    reference = GPT2LMHeadModel(ReferenceConfig(attn_implementation="eager")).eval()
    model = GPT2(GPT2Config.from_dict(reference.config.to_dict()), reference_params(reference))
    assert model.num_params() == 124_439_808
    ids = np.random.default_rng(0).integers(0, 50257, 512)
    with torch.no_grad():
        want = reference(torch.tensor(ids)[None]).logits[0].numpy()
    got = model(ids)
    assert relative_error(got, want) < 1e-5
    rows, first, second = np.arange(512), got.argmax(axis=-1), want.argmax(axis=-1)
    near_ties = want[rows, second] - want[rows, first]  # 0 where both agree
    assert near_ties.max() < 1e-5 * np.abs(want).max()
    assert (first == second).mean() > 0.99
