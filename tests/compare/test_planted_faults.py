"""A wrong weight or a wrong setting in another implementation is found where it first matters."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compare.ports import moved, port, report, stations_of

SPOTS = {  # tensor -> an index that matters, the first station that depends on it
    "wte.weight": ((7, 5), "embed"),
    "wpe.weight": ((6, 5), "embed"),
    "h.1.ln_1.weight": ((4,), "h.1.attn.probs"),
    "h.1.ln_1.bias": ((4,), "h.1.attn.probs"),
    "h.1.attn.c_attn.weight": ((9, 50), "h.1.attn.probs"),  # a key: 48 … 95
    "h.1.attn.c_attn.bias": ((3,), "h.1.attn.probs"),  # a query: 0 … 47
    "h.1.attn.c_proj.weight": ((8, 9), "h.1.attn"),
    "h.1.attn.c_proj.bias": ((8,), "h.1.attn"),
    "h.1.ln_2.weight": ((4,), "h.1.mlp"),
    "h.1.ln_2.bias": ((4,), "h.1.mlp"),
    "h.1.mlp.c_fc.weight": ((9, 120), "h.1.mlp"),
    "h.1.mlp.c_fc.bias": ((120,), "h.1.mlp"),
    "h.1.mlp.c_proj.weight": ((120, 9), "h.1.mlp"),
    "h.1.mlp.c_proj.bias": ((9,), "h.1.mlp"),
    "ln_f.weight": ((4,), "ln_f"),
    "ln_f.bias": ((4,), "ln_f"),
}


def test_every_tensor_of_a_block_has_its_spot(gpt2):
    assert {name for name in gpt2.params if not name.startswith(("h.0.", "h.2."))} == SPOTS.keys()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SPOTS)
def test_one_weight_off_points_to_its_block(gpt2, tmp_path, name, dtype):
    """One number moved by 0.02, the spread of GPT-2's weights when training starts."""
    place, wanted = SPOTS[name]
    other = stations_of(port(gpt2, moved(gpt2, name, place, 0.02), dtype))
    found = report(tmp_path, other, "--dtype", dtype)
    assert (found["code"], found["first_beyond"]) == (1, wanted)


def test_a_value_does_not_show_in_the_weights_of_attention(gpt2, tmp_path):
    other = stations_of(port(gpt2, moved(gpt2, "h.2.attn.c_attn.weight", (9, 100), 0.02)))
    assert report(tmp_path, other)["first_beyond"] == "h.2.attn"


def test_the_bias_of_the_keys_shows_nowhere(gpt2, tmp_path):
    """It adds the same to all scores of a query, which softmax takes out again."""
    other = stations_of(port(gpt2, moved(gpt2, "h.1.attn.c_attn.bias", (50,), 0.02)))
    assert report(tmp_path, other)["code"] == 0


def test_a_head_that_should_be_tied(gpt2, tmp_path):
    """A row of wte that the text does not use matters to the logits alone."""
    other = stations_of(port(gpt2, moved(gpt2, "wte.weight", (25, 5), 0.02)))
    assert report(tmp_path, other)["first_beyond"] == "logits"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("activation_function", "gelu", "h.0.mlp"),
        ("layer_norm_epsilon", 1e-6, "h.0.attn.probs"),
        ("scale_attn_weights", False, "h.0.attn.probs"),
        ("scale_attn_by_inverse_layer_idx", True, "h.1.attn.probs"),
    ],
)
def test_another_setting(gpt2, tmp_path, option, value, wanted, dtype):
    """Among them the exact GELU for the tanh form, and no 1/√d_h."""
    other = stations_of(port(gpt2, dtype=dtype, **{option: value}))
    assert report(tmp_path, other, "--dtype", dtype)["first_beyond"] == wanted


def test_a_square_projection_transposed(gpt2, tmp_path):
    name = "h.1.attn.c_proj.weight"
    other = stations_of(port(gpt2, {name: gpt2.params[name].T}))
    assert report(tmp_path, other)["first_beyond"] == "h.1.attn"


def test_queries_and_keys_swapped(gpt2, tmp_path):
    changed = {}
    for name in ("h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias"):
        q, k, v = np.split(gpt2.params[name], 3, axis=-1)
        changed[name] = np.concatenate([k, q, v], axis=-1)
    assert report(tmp_path, stations_of(port(gpt2, changed)))["first_beyond"] == "h.0.attn.probs"
