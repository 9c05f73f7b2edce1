"""Which stored tensor becomes which parameter: prefixes, mask buffers, heads."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.models.gpt2.checkpoint import load_checkpoint
from npgpt.models.gpt2.config import param_shapes
from tests.models.small_checkpoints import (
    SMALL,
    UNTIED,
    assert_same,
    random_params,
    refusal,
    write_checkpoint,
)


def prefixed(prefix, params):
    return {name if name == "lm_head.weight" else prefix + name: a for name, a in params.items()}


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "transformer.",
        "module.",
        "_orig_mod.",
        "module._orig_mod.transformer.",
        "_orig_mod.module.transformer.",
        "transformer._orig_mod.",
        "transformer.transformer.",
    ],
)
def test_prefixes_are_stripped_however_nested(tmp_path, prefix):
    params = random_params(UNTIED)
    config, found = load_checkpoint(write_checkpoint(tmp_path, prefixed(prefix, params), UNTIED))
    assert_same(found, params)
    assert list(found) == list(param_shapes(config))


def test_blocks_compiled_one_by_one_are_found(tmp_path):
    params = random_params()
    stored = {name.replace("h.1.", "h.1._orig_mod."): array for name, array in params.items()}
    assert_same(load_checkpoint(write_checkpoint(tmp_path, stored))[1], params)


def test_a_mixture_with_and_without_transformer_is_refused(tmp_path):
    stored = prefixed("transformer.", random_params(UNTIED))
    stored["h.1.ln_1.bias"] = stored.pop("transformer.h.1.ln_1.bias")
    text = refusal(write_checkpoint(tmp_path, stored, UNTIED))
    assert "'h.1.ln_1.bias'" in text
    assert "mixed" in text


def test_a_wrapped_head_is_found(tmp_path):
    params = random_params(UNTIED)
    stored = {"module." + name: array for name, array in prefixed("transformer.", params).items()}
    assert "module.lm_head.weight" in stored
    assert_same(load_checkpoint(write_checkpoint(tmp_path, stored, UNTIED))[1], params)


def test_two_tensors_that_become_one_parameter_are_refused(tmp_path):
    params = random_params()
    stored = {**params, "module.ln_f.bias": params["ln_f.bias"]}
    text = refusal(write_checkpoint(tmp_path, stored))
    assert "'ln_f.bias'" in text
    assert "'module.ln_f.bias'" in text


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_mask_buffers_are_ignored_and_c_attn_bias_is_none(tmp_path, prefix):
    params = random_params()
    stored = prefixed(prefix, params)
    for n in range(SMALL.n_layer):
        stored[f"{prefix}h.{n}.attn.bias"] = np.ones((1, 1, 5, 5), bool)
        stored[f"{prefix}h.{n}.attn.masked_bias"] = np.array(-1e4, np.float32)
    assert_same(load_checkpoint(write_checkpoint(tmp_path / "with", stored))[1], params)
    del stored[prefix + "h.1.attn.c_attn.bias"]
    text = refusal(write_checkpoint(tmp_path / "without", stored))
    assert text.endswith("lacks 'h.1.attn.c_attn.bias' of shape [18].")


def test_without_a_head_it_is_tied(tmp_path):
    config, params = load_checkpoint(write_checkpoint(tmp_path, random_params()))
    assert config.tie_word_embeddings
    assert "lm_head.weight" not in params


def test_an_equal_head_is_tied_and_counted_once(tmp_path):
    params = random_params()
    stored = {**params, "lm_head.weight": params["wte.weight"]}
    assert_same(load_checkpoint(write_checkpoint(tmp_path, stored))[1], params)


def test_an_equal_head_that_the_config_unties_stays_a_parameter(tmp_path):
    params = random_params()
    params["lm_head.weight"] = params["wte.weight"].copy()
    config, found = load_checkpoint(write_checkpoint(tmp_path, params, UNTIED))
    assert not config.tie_word_embeddings
    assert_same(found, params)


def test_a_different_head_is_refused_while_tied(tmp_path):
    stored = random_params(UNTIED)
    text = refusal(write_checkpoint(tmp_path, stored))
    assert "'lm_head.weight' differs from 'wte.weight'" in text
    assert "tie_word_embeddings to false" in text


def test_a_head_of_another_size_is_refused(tmp_path):
    stored = random_params(UNTIED)
    stored["lm_head.weight"] = stored["lm_head.weight"][:-1]
    assert "differs" in refusal(write_checkpoint(tmp_path / "tied", stored))
    text = refusal(write_checkpoint(tmp_path / "untied", stored, UNTIED))
    assert "'lm_head.weight' has shape [10, 6], but by config.json it must have [11, 6]" in text


def test_an_untied_head_that_is_missing_is_refused(tmp_path):
    text = refusal(write_checkpoint(tmp_path, random_params(), UNTIED))
    assert "lacks 'lm_head.weight' of shape [11, 6], but tie_word_embeddings is false" in text


def test_a_head_without_wte_is_refused(tmp_path):
    stored = random_params(UNTIED)
    del stored["wte.weight"]
    text = refusal(write_checkpoint(tmp_path, stored))
    assert "lacks 'wte.weight' of shape [11, 6]; lm_head.weight cannot stand in for it." in text
