"""Llama's configuration: what is read, what is refused, and the speeds of the rotary positions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from npgpt.models.llama.config import LlamaConfig, param_shapes
from tests.builders.llama import SIZES, tiny_llama_config

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize(
    "raw",
    [
        {"rope_theta": 5e5, "rope_scaling": LLAMA3},
        {"rope_parameters": {"rope_theta": 5e5, **LLAMA3}},
        {"rope_theta": 5e5, "rope_scaling": {**LLAMA3, "type": "llama3"}},
    ],
)
def test_rotary_settings_of_old_and_new_files(raw) -> None:
    config = tiny_llama_config(**raw)
    assert (config.rope_theta, config.rope_scaling) == (5e5, LLAMA3)
    assert LlamaConfig.from_dict(config.to_dict()) == LlamaConfig.from_dict(
        {**config.to_dict(), "rope_scaling": None}
    )


def test_without_any_rotary_setting() -> None:
    config = tiny_llama_config()
    assert (config.rope_theta, config.rotary.rope_type) == (10000.0, "default")
    assert config.to_dict()["rope_parameters"] == {"rope_type": "default", "rope_theta": 10000.0}


def test_left_out_sizes_follow_from_the_others() -> None:
    config = tiny_llama_config(hidden_size=24, num_key_value_heads=None, head_dim=None)
    shapes = param_shapes(config)
    assert shapes["layers.1.self_attn.k_proj.weight"] == (24, 24)
    assert config.d_h == 4
    wide = param_shapes(tiny_llama_config())
    assert wide["layers.0.self_attn.q_proj.weight"] == (18, 24)
    assert wide["layers.0.self_attn.v_proj.weight"] == (18, 12)
    assert wide["layers.0.self_attn.o_proj.weight"] == (24, 18)
    assert wide["layers.0.mlp.down_proj.weight"] == (10, 18)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_key_value_heads": 4}, "num_attention_heads 6 is no multiple of num_key_value_heads"),
        ({"head_dim": None, "hidden_size": 20}, "hidden_size 20 cannot be cut into"),
        ({"head_dim": 5}, "a head is 5 wide, but rotary positions turn pairs"),
        ({"rope_scaling": 3}, "rotary settings are 3"),
        ({"rope_scaling": {"type": "su"}}, "'su' is not offered; .* default, linear, dynamic, lla"),
        (
            {"rope_scaling": {"type": "yarn"}},
            "'yarn' needs factor, a number from 1e-09 to 1e\\+09, but it is None",
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": -1}},
            "'yarn' needs beta_fast, a number from 1e-09 to .*, but it is -1",
        ),
        (
            {"rope_scaling": {"type": "longrope", "short_factor": [1.0, 2.0], "long_factor": [1]}},
            r"'longrope' needs long_factor, a list of 2 numbers from 1e-09 .* but it is \[1\]",
        ),
        (
            {
                "rope_scaling": {
                    "type": "longrope",
                    "short_factor": [1.0, 2.0],
                    "long_factor": [1.0, 2.0],
                    "original_max_position_embeddings": 1,
                }
            },
            "original_max_position_embeddings is 1, but rope_type 'longrope' needs more than one",
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 2}, "rope_theta": 1},
            "'yarn' needs a rope_theta other than 1",
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 2, "truncate": "no"}},
            "truncate is 'no', but must be true or false",
        ),
        ({"rope_scaling": {"type": "linear"}}, "'linear' needs factor, a number from .* None"),
        ({"rope_scaling": {"type": "linear", "factor": 1e-310}}, "from 1e-09 .* it is 1e-310"),
        (
            {"rope_scaling": {"type": "longrope", "short_factor": [1e-310, 1], "long_factor": []}},
            r"'longrope' needs short_factor, .* it is \[1e-310, 1\]",
        ),
        ({"rope_scaling": {"type": "dynamic", "factor": 0.5}}, "a number from 1 to .* it is 0.5"),
        ({"rope_scaling": {"type": "dynamic", "factor": 1e299}}, r"it is 1e\+299"),
        (
            {
                "rope_scaling": {"type": "yarn", "factor": 2},
                "original_max_position_embeddings": 1e10,
            },
            "'yarn' needs original_max_position_embeddings, .* it is 10000000000",
        ),
        ({"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}}, "low_freq_factor must be below"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is set"),
        (
            {"head_dim": 2, "rope_scaling": {"type": "dynamic", "factor": 2}},
            "'dynamic' needs heads wider",
        ),
    ],
)
def test_refused_in_one_sentence(changes, sentence) -> None:
    with pytest.raises(ValueError, match=f"here: .*{sentence}") as caught:
        LlamaConfig.from_dict({**SIZES, **changes}, "here")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "scaling",
    [
        {"type": "linear", "factor": 2.0},
        {"factor": 2.0},
        {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5},
    ],
)
def test_a_configuration_made_directly_takes_rotary_settings_by_one_name(scaling) -> None:
    """Those of a file may have other names, see `read_rotary`; here they would not be read."""
    with pytest.raises(ValueError, match=r"^rope_scaling is .*; give the type in it as rope_type"):
        replace(tiny_llama_config(), rope_scaling=scaling)


def test_llama_3_1_keeps_fast_pairs_and_slows_the_slow_ones() -> None:
    """Pair i of 64 makes 8192 θ_i / 2π turns within the context: above 4 fast, below 1 slow."""
    sizes = {"head_dim": 128, "rope_theta": 5e5, "max_position_embeddings": 131072}
    plain = tiny_llama_config(**sizes).rotary.frequencies(1)
    slowed = plain / tiny_llama_config(**sizes, rope_scaling=LLAMA3).rotary.frequencies(1)
    turns = 8192 * plain / (2 * math.pi)
    np.testing.assert_allclose(plain, [5e5 ** (-i / 64) for i in range(64)], rtol=1e-13)
    np.testing.assert_allclose(slowed[turns > 4], 1, rtol=1e-13)
    np.testing.assert_allclose(slowed[turns < 1], 8, rtol=1e-13)
    between = slowed[(turns > 1) & (turns < 4)]
    assert len(between) == 6
    assert (np.diff(between) > 0).all()


@pytest.mark.parametrize("rope_type", ["linear", "dynamic", "llama3"])
def test_an_attention_factor_counts_for_the_types_that_have_one(rope_type) -> None:
    scaling = {**LLAMA3, "rope_type": rope_type, "attention_factor": 1.5}
    with pytest.warns(UserWarning, match="npgpt does not know .*attention_factor"):
        assert tiny_llama_config(rope_scaling=scaling).rotary.attention_factor == 1
    yarn = {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1.5}
    assert tiny_llama_config(rope_scaling=yarn).rotary.attention_factor == 1.5


def test_linear_and_dynamic() -> None:
    plain = tiny_llama_config().rotary.frequencies(11)
    linear = tiny_llama_config(rope_scaling={"type": "linear", "factor": 4}).rotary.frequencies(11)
    np.testing.assert_allclose(linear, plain / 4)
    dynamic = tiny_llama_config(rope_scaling={"type": "dynamic", "factor": 3})
    np.testing.assert_array_equal(dynamic.rotary.frequencies(11), plain)
    longer = dynamic.rotary.frequencies(22)  # 3 · 22 / 11 - 2 = 4
    np.testing.assert_allclose(plain / longer, [1, 4], rtol=1e-13)
