"""The shapes of stored tensors: orientation of matrices, rows of tables, and what is extra."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npgpt.models.gpt2.checkpoint import load_checkpoint
from tests.models.small_checkpoints import (
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


def test_a_missing_tensor_is_named_and_the_others_counted(tmp_path):
    stored = random_params()
    del stored["h.1.ln_2.weight"]
    assert refusal(write_checkpoint(tmp_path, stored)).endswith(
        "lacks 'h.1.ln_2.weight' of shape [6]."
    )
    del stored["ln_f.bias"], stored["wpe.weight"]
    text = refusal(write_checkpoint(tmp_path, stored))
    assert text.endswith("lacks 'wpe.weight' of shape [5, 6] and 2 more.")


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


@pytest.mark.parametrize(("n_layer", "says"), [(3, "lacks 'h.2.ln_1.weight'"), (1, "has 'h.1.")])
def test_another_number_of_blocks_is_refused(tmp_path, n_layer, says):
    assert says in refusal(write_checkpoint(tmp_path, random_params(), n_layer=n_layer))


def test_unused_tensors_are_named_and_may_have_any_shape(tmp_path):
    params = random_params()
    extra = {
        "score.weight": np.zeros((2, 6), np.float32),
        "h.0.attn.rotary": np.zeros((0, 4), np.float32),
        "steps": np.array(7),
    }
    folder = write_checkpoint(tmp_path, {**params, **extra})
    with pytest.warns(UserWarning, match="not used: ") as caught:
        found = load_checkpoint(folder)[1]
    assert all(name in str(caught[0].message) for name in extra)
    assert caught[0].filename == __file__
    assert_same(found, params)


@pytest.mark.parametrize("name", ["wte.weight", "h.1.attn.c_proj.bias"])
def test_integer_weights_are_refused(tmp_path, name):
    stored = random_params()
    stored[name] = stored[name].astype(np.int32)
    text = refusal(write_checkpoint(tmp_path, stored))
    assert f"{name!r} is stored as I32, but a weight must be one of F32, F16, BF16, F64" in text
