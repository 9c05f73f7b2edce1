"""The encoder-decoder against transformers, live: logits and every gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npgpt.models.transformer.model import Transformer
from npgpt.ops.label_smoothing import label_smoothing_backward, label_smoothing_forward
from tests.goldens.make_transformer import (
    MUST,
    SEARCHES,
    SMOOTHING,
    config_of,
    random_input,
    reference_model,
    reference_params,
    reference_text,
    reference_values,
)
from tests.gradcheck import relative_error
from tests.models.tiny_transformer import joined

pytestmark = [pytest.mark.hf, pytest.mark.usefixtures("hf")]

SIZES = {"vocab_size": 31, "d_model": 24, "encoder_layers": 2, "decoder_layers": 3}

# name -> options, lengths of the sources, of the targets
CASES: dict[str, tuple[dict[str, Any], list[int], list[int]]] = {
    "bart": ({"model_type": "bart"}, [7, 7], [5, 5]),
    "bart, padded": ({"model_type": "bart"}, [9, 3, 6], [2, 8, 5]),
    "bart, scaled, relu": (
        {"model_type": "bart", "scale_embedding": True, "activation_function": "relu"},
        [5],
        [4],
    ),
    "bart, starts with padding": (
        {"model_type": "bart", "decoder_start_token_id": 1, "activation_function": "gelu_new"},
        [6, 2],
        [1, 3],
    ),
    "bart, three tables": ({"model_type": "bart", "tie_word_embeddings": False}, [4, 8], [7, 3]),
    "bart, all positions": ({"model_type": "bart", "encoder_attention_heads": 1}, [17], [17]),
    "marian": ({"model_type": "marian", "decoder_start_token_id": 1}, [7, 7], [5, 5]),
    "marian as published": (
        {
            "model_type": "marian",
            "scale_embedding": True,
            "activation_function": "swish",
            "decoder_start_token_id": 1,
        },
        [9, 3, 6],
        [2, 8, 5],
    ),
    "marian, two tables": (
        {
            "model_type": "marian",
            "share_encoder_decoder_embeddings": False,
            "decoder_vocab_size": 13,
        },
        [3, 5],
        [6, 4],
    ),
    "marian, three tables": (
        {
            "model_type": "marian",
            "share_encoder_decoder_embeddings": False,
            "decoder_vocab_size": 13,
            "tie_word_embeddings": False,
            "encoder_attention_heads": 12,
        },
        [3, 5],
        [6, 4],
    ),
    "marian, odd width": (
        {
            "model_type": "marian",
            "d_model": 15,
            "decoder_attention_heads": 5,
            "activation_function": "tanh",
            "decoder_layers": 1,
        },
        [1, 6],
        [1, 2],
    ),
}


def both(options, lengths, target_lengths, dtype="float64"):
    """What npgpt computes and what transformers does, by name, for one random model and input."""
    reference = reference_model({**SIZES, **options}, 5, dtype)
    model = Transformer(config_of(reference), reference_params(reference))
    given = random_input(model.config, lengths, target_lengths, 5)
    want = reference_values(reference, given)
    logits, saved = model.forward(
        given["ids"], given["decoder_ids"], given["mask"], given["decoder_mask"]
    )
    loss, saved_loss = label_smoothing_forward(logits, given["targets"], smoothing=SMOOTHING)
    grads = model.backward(label_smoothing_backward(1.0, saved_loss), saved)
    got: dict[str, Any] = {"logits": logits, "loss": loss}
    got |= {"grad." + name: grad for name, grad in grads.items()}
    real = given["decoder_mask"] == 1
    got["logits"], want["logits"] = got["logits"][real], want["logits"][real]
    assert got.keys() == want.keys()
    return joined(got), joined(want)


def worst(got, want):
    """The largest relative error of all tensors, and which it is."""
    return max((relative_error(got[name], want[name]), name) for name in want)


@pytest.mark.parametrize("case", CASES)
def test_float64(case) -> None:
    got, want = both(*CASES[case])
    assert worst(got, want) < (1e-11, "")


@pytest.mark.parametrize("case", ["bart, padded", "marian as published"])
def test_float32(case) -> None:
    got, want = both(*CASES[case], dtype="float32")
    assert {value.dtype for value in got.values()} == {np.dtype(np.float32)}
    assert relative_error(got["logits"], want["logits"]) < 2e-6
    assert worst(got, want) < (1e-4, "")


def test_one_small_error_would_be_seen() -> None:
    """The other GELU, which differs by 5e-4 at most, is far outside the tolerance."""
    exact, _ = both({"model_type": "bart"}, [7], [5])
    _, tanh = both({"model_type": "bart", "activation_function": "gelu_new"}, [7], [5])
    assert relative_error(exact["logits"], tanh["logits"]) > 1e-5


def test_loss_and_grads_shift_the_targets_as_transformers_does() -> None:
    import torch

    reference = reference_model({"model_type": "bart"}, 3)
    model = Transformer(config_of(reference), reference_params(reference))
    given = random_input(model.config, [6, 3], [5, 4], 3)
    loss, grads = model.loss_and_grads(given["ids"], given["targets"], given["mask"])
    want = reference(
        input_ids=torch.tensor(given["ids"]),
        attention_mask=torch.tensor(given["mask"]),
        labels=torch.tensor(given["targets"]),
    ).loss
    want.backward()
    assert float(loss) == pytest.approx(want.item(), rel=1e-13)
    got = grads["shared.weight"]
    assert relative_error(got, reference.model.shared.weight.grad.numpy()) < 1e-12


@pytest.mark.parametrize("must", MUST)
@pytest.mark.parametrize("search", SEARCHES)
def test_text(search, must) -> None:
    """Four random models, three sources each; ends of text are made likely."""
    seen = set()
    for seed in range(4):
        reference = reference_model({**SIZES, "model_type": ["bart", "marian"][seed % 2]}, seed)
        reference.final_logits_bias[0, 2] += seed
        config = replace(config_of(reference), **{"forced_eos_token_id": None, **MUST[must]})
        model = Transformer(config, reference_params(reference))
        given = random_input(model.config, [7, 4, 9], [1, 1, 1], seed)
        settings = {"max_new_tokens": 12, **SEARCHES[search]}
        want = reference_text(reference, given, **settings, **MUST[must])
        got = model.generate(given["ids"], attention_mask=given["mask"], **settings)
        assert got == want
        seen |= {tuple(row) for row in got}
    assert len(seen) > 1 or search == "one token"
