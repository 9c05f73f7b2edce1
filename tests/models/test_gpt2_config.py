"""GPT-2's configuration: its defaults, and that every option has its effect."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.models.gpt2.model import GPT2
from tests.builders.gpt2 import SIZES, random_gpt2, tiny_gpt2_config


def test_defaults_are_gpt2_small() -> None:
    config = GPT2Config.from_dict({})
    assert config == GPT2Config()
    assert (config.vocab_size, config.n_positions, config.n_embd) == (50257, 1024, 768)
    assert (config.n_layer, config.n_head, config.ffn_width) == (12, 12, 3072)
    assert config.attention_divisor(5) == 8


def test_a_fresh_configuration_names_its_model() -> None:
    fresh = GPT2Config().to_dict()
    assert (fresh["model_type"], fresh["architectures"]) == ("gpt2", ["GPT2LMHeadModel"])


@pytest.mark.parametrize(
    "options",
    [
        {"scale_attn_weights": False},
        {"scale_attn_by_inverse_layer_idx": True},
        {"layer_norm_epsilon": 1e-2},
        *({"activation_function": name} for name in ("gelu", "relu", "silu", "tanh")),
    ],
)
def test_each_option_changes_the_logits(rng, options) -> None:
    model, ids = random_gpt2(rng), rng.integers(0, 19, 8)
    other = GPT2(tiny_gpt2_config(**options), model.params)
    assert np.abs(model(ids) - other(ids)).max() > 1e-4


@pytest.mark.parametrize(
    "options", [{"reorder_and_upcast_attn": True}, {"activation_function": "gelu_pytorch_tanh"}]
)
def test_options_that_are_the_same_mathematics(rng, options) -> None:
    model, ids = random_gpt2(rng), rng.integers(0, 19, 8)
    other = GPT2(tiny_gpt2_config(**options), model.params)
    np.testing.assert_array_equal(model(ids), other(ids))


def test_what_the_scores_are_divided_by() -> None:
    """√d_h = 2, unless one of the two options says otherwise."""
    assert [tiny_gpt2_config().attention_divisor(n) for n in range(3)] == [2, 2, 2]
    unscaled = tiny_gpt2_config(scale_attn_weights=False)
    assert [unscaled.attention_divisor(n) for n in range(3)] == [1, 1, 1]
    by_layer = tiny_gpt2_config(scale_attn_by_inverse_layer_idx=True)
    assert [by_layer.attention_divisor(n) for n in range(3)] == [2, 4, 6]
    assert all(type(by_layer.attention_divisor(n)) is float for n in range(3))


def test_parameters_that_follow_from_the_options() -> None:
    assert tiny_gpt2_config(n_inner=None).ffn_width == 4 * SIZES["n_embd"]
    shapes = param_shapes(tiny_gpt2_config(n_inner=7, tie_word_embeddings=False))
    assert shapes["h.1.mlp.c_fc.weight"] == (12, 7)
    assert shapes["h.1.mlp.c_fc.bias"] == (7,)
    assert shapes["h.1.mlp.c_proj.weight"] == (7, 12)
    assert shapes["h.1.attn.c_attn.weight"] == (12, 36)
    assert shapes["wte.weight"] == shapes["lm_head.weight"] == (19, 12)
    assert shapes["wpe.weight"] == (11, 12)
    assert "lm_head.weight" not in param_shapes(tiny_gpt2_config())
    assert not any(name.startswith("h.2.") for name in shapes)
