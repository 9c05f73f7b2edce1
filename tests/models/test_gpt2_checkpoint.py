"""What is GPT-2's own in a checkpoint: two orientations, rows of tables, mask buffers, the head."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npgpt.models.gpt2.checkpoint import load_checkpoint
from tests.builders.checkpoints import (
    SMALL,
    UNTIED,
    assert_same,
    random_params,
    refusal,
    write_checkpoint,
)

MATRICES = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


@pytest.mark.parametrize("n_inner", [10, 6, None])
def test_linear_checkpoints_are_transposed_square_matrices_too(tmp_path, n_inner):
    config = replace(SMALL, n_inner=n_inner)
    params = random_params(config)
    stored = {name: a.T if name.endswith(MATRICES) else a for name, a in params.items()}
    assert stored["h.0.attn.c_proj.weight"].shape == params["h.0.attn.c_proj.weight"].shape
    found = load_checkpoint(write_checkpoint(tmp_path, stored, config))[1]
    assert_same(found, params)
    assert all(a.flags.c_contiguous and a.flags.writeable for a in found.values())


def test_a_mixture_of_orientations_is_refused(tmp_path):
    stored = random_params()
    stored["h.1.mlp.c_fc.weight"] = stored["h.1.mlp.c_fc.weight"].T
    text = refusal(write_checkpoint(tmp_path, stored))
    assert "'h.1.mlp.c_fc.weight' as [out, in]" in text


@pytest.mark.parametrize("rows", [12, 19])
def test_a_padded_vocabulary_keeps_vocab_size_and_its_rows(tmp_path, rows):
    params = random_params(replace(UNTIED, vocab_size=rows))
    config, found = load_checkpoint(write_checkpoint(tmp_path, params, UNTIED))
    assert config.vocab_size == 11
    assert_same(found, params)


def test_a_table_smaller_than_vocab_size_is_trusted_with_a_warning(tmp_path):
    params = random_params(replace(SMALL, vocab_size=9))
    folder = write_checkpoint(tmp_path, params)
    with pytest.warns(UserWarning, match="wte.weight has 9 rows, but vocab_size is 11"):
        config, found = load_checkpoint(folder)
    assert config.vocab_size == 9
    assert_same(found, params)


@pytest.mark.parametrize("rows", [3, 8])
def test_wpe_is_trusted_over_n_positions_with_a_warning(tmp_path, rows):
    params = random_params(replace(SMALL, n_positions=rows))
    folder = write_checkpoint(tmp_path, params)
    with pytest.warns(UserWarning, match=f"wpe.weight has {rows} rows, but n_positions is 5"):
        config, found = load_checkpoint(folder)
    assert config.n_positions == rows
    assert_same(found, params)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("h.0.mlp.c_fc.bias", (9,)),
        ("h.1.attn.c_attn.weight", (6, 17)),
        ("wte.weight", (11, 7)),
        ("wte.weight", (66,)),
        ("wpe.weight", (0, 6)),
        ("ln_f.weight", ()),
    ],
)
def test_a_misshapen_tensor_is_named_with_both_shapes(tmp_path, name, shape):
    stored = random_params()
    wanted = list(stored[name].shape)
    stored[name] = np.zeros(shape, np.float32)
    text = refusal(write_checkpoint(tmp_path, stored))
    assert f"{name!r} has shape {list(shape)}, but by config.json it must have {wanted}." in text


def prefixed(prefix, params):
    return {name if name == "lm_head.weight" else prefix + name: a for name, a in params.items()}


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


def test_an_equal_head_that_the_config_unties_stays_a_parameter(tmp_path):
    params = random_params()
    params["lm_head.weight"] = params["wte.weight"].copy()
    config, found = load_checkpoint(write_checkpoint(tmp_path, params, UNTIED))
    assert not config.tie_word_embeddings
    assert_same(found, params)


def test_a_head_of_another_size_is_refused(tmp_path):
    stored = random_params(UNTIED)
    stored["lm_head.weight"] = stored["lm_head.weight"][:-1]
    assert "differs" in refusal(write_checkpoint(tmp_path / "tied", stored))
    text = refusal(write_checkpoint(tmp_path / "untied", stored, UNTIED))
    assert "'lm_head.weight' has shape [10, 6], but by config.json it must have [11, 6]" in text


def test_a_head_without_wte_is_refused(tmp_path):
    stored = random_params(UNTIED)
    del stored["wte.weight"]
    text = refusal(write_checkpoint(tmp_path, stored))
    assert "lacks 'wte.weight' of shape [11, 6]; lm_head.weight cannot stand in for it." in text
