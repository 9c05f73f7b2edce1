"""bart and marian checkpoints: which stored tensor is which parameter, what is refused, saving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt.files.safetensors_file import read_tensors, write_tensors
from npgpt.models.transformer.checkpoint import LAYOUT
from npgpt.models.transformer.config import param_shapes
from npgpt.models.transformer.model import Transformer
from npgpt.ops.sinusoids import sinusoids_in_halves
from tests.models.small_checkpoints import assert_same
from tests.models.tiny_transformer import DIALECTS, random_transformer

LAST = "encoder.layers.1.final_layer_norm.bias"
SQUARE = "model.decoder.layers.0.encoder_attn.q_proj.weight"


def stored(folder: Path) -> dict[str, np.ndarray]:
    return read_tensors(folder / "model.safetensors")


def save(folder: Path, options: dict[str, Any] | None = None) -> Transformer:
    """A random float32 model in a folder."""
    model = random_transformer(np.random.default_rng(8), np.float32, **(options or {}))
    model.save_pretrained(folder)
    return model


def change(folder: Path, tensors: dict[str, Any] | None = None, **settings: Any) -> Path:
    """Add or replace tensors (None: remove) and settings of config.json."""
    changed = {**stored(folder), **(tensors or {})}
    write_tensors(folder / "model.safetensors", {n: a for n, a in changed.items() if a is not None})
    path = folder / "config.json"
    raw = {**json.loads(path.read_text(encoding="utf-8")), **settings}
    path.write_text(json.dumps(raw), encoding="utf-8")
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(ValueError, match=r"(safetensors|config\.json): ") as caught:
        npgpt.from_pretrained(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("options", DIALECTS.values(), ids=list(DIALECTS))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_saved_is_loaded_again(tmp_path, options, dtype) -> None:
    model = save(tmp_path, options)
    found = npgpt.from_pretrained(tmp_path, dtype=dtype)
    assert isinstance(found, Transformer)
    assert_same(found.params, {name: a.astype(dtype) for name, a in model.params.items()})
    assert list(found.params) == list(param_shapes(model.config))
    assert all(a.flags.c_contiguous and a.flags.writeable for a in found.params.values())
    assert found.config.model_type == model.config.model_type
    np.testing.assert_allclose(found([3, 4, 5], [1, 6]), model([3, 4, 5], [1, 6]), atol=1e-5)


def test_matrices_are_stored_out_in_and_tables_are_not(tmp_path) -> None:
    """By value: most of them are square."""
    model, tensors = save(tmp_path, {"model_type": "bart"}), stored(tmp_path)
    for name, param in model.params.items():
        found = tensors[name if name == "final_logits_bias" else f"model.{name}"]
        np.testing.assert_array_equal(found, param.T if LAYOUT.is_matrix(name) else param, name)
    assert LAYOUT.is_matrix(SQUARE.removeprefix("model."))
    raw = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert raw["architectures"] == ["BartForConditionalGeneration"]
    assert (raw["model_type"], raw["dtype"]) == ("bart", "float32")


@pytest.mark.parametrize("prefix", ["", "model.", "module.model.", "_orig_mod.model."])
def test_prefixes_are_stripped(tmp_path, prefix) -> None:
    model = save(tmp_path, DIALECTS["bart"])
    tensors = {prefix + name.removeprefix("model."): a for name, a in stored(tmp_path).items()}
    write_tensors(tmp_path / "model.safetensors", tensors)
    assert_same(npgpt.from_pretrained(tmp_path).params, model.params)


def test_copies_of_a_shared_table_are_taken_for_what_they_are(tmp_path) -> None:
    model = save(tmp_path, DIALECTS["marian"])
    table = model.params["shared.weight"]
    names = ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    change(tmp_path, {f"{name}.weight": table for name in names})
    assert_same(npgpt.from_pretrained(tmp_path).params, model.params)
    change(tmp_path, {"model.shared.weight": None})  # stored under its users' names alone
    assert_same(npgpt.from_pretrained(tmp_path).params, model.params)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("lm_head.weight", "tie_word_embeddings"),
        ("model.encoder.embed_tokens.weight", "share_encoder_decoder_embeddings"),
        ("model.decoder.embed_tokens.weight", "share_encoder_decoder_embeddings"),
    ],
)
def test_another_table_than_the_shared_one_is_refused(tmp_path, name, key) -> None:
    model = save(tmp_path, DIALECTS["bart"])
    text = refusal(change(tmp_path, {name: model.params["shared.weight"] + 1}))
    assert f"{name.removeprefix('model.')!r} differs from 'shared.weight'" in text
    assert f"set {key} to false" in text


def test_marians_sinusoids_are_computed_and_checked(tmp_path) -> None:
    model = save(tmp_path, DIALECTS["marian"])
    name = "model.encoder.embed_positions.weight"
    table = sinusoids_in_halves(np.arange(17), 12)
    for dtype in (np.float32, np.float16):
        change(tmp_path, {name: table.astype(dtype)})
        assert_same(npgpt.from_pretrained(tmp_path).params, model.params)
    for wrong in (table[:, ::-1], table[:, :11], table[0], table + 0.01):
        text = refusal(change(tmp_path, {name: np.ascontiguousarray(wrong)}))
        assert "'encoder.embed_positions.weight' holds other numbers" in text


def test_a_missing_bias_of_the_logits_is_zero(tmp_path) -> None:
    save(tmp_path, DIALECTS["bart"])
    change(tmp_path, {"final_logits_bias": None})
    assert not npgpt.from_pretrained(tmp_path).params["final_logits_bias"].any()


@pytest.mark.parametrize(
    ("tensors", "settings", "says"),
    [
        ({f"model.{LAST}": None}, {}, f"lacks '{LAST}' of shape [12]."),
        ({f"model.{LAST}": None, SQUARE: None}, {}, "of shape [12] and 1 more."),
        ({"model.shared.weight": None}, {}, "lacks 'shared.weight' of shape [19, 12]."),
        ({}, {"tie_word_embeddings": False}, "lacks 'lm_head.weight' of shape [19, 12], but tie_"),
        ({}, {"encoder_layers": 1}, "but encoder_layers is 1 in config.json"),
        (
            {},
            {"decoder_layers": 4},
            "lacks 'decoder.layers.3.self_attn.k_proj.weight' of shape [12",
        ),
        (
            {},
            {"encoder_ffn_dim": 11},
            "has shape [10, 12], but by config.json it must have [11, 12]",
        ),
        ({}, {"vocab_size": 20}, "'shared.weight' has shape [19, 12], but by config.json it must"),
        ({"shared.weight": np.zeros((19, 12), np.float32)}, {}, "are both 'shared.weight'."),
        ({SQUARE: np.zeros((12, 12), np.int32)}, {}, "is stored as I32, but a weight must be"),
        ({SQUARE: np.zeros((12, 11), np.float32)}, {}, "has shape [12, 11], but by config.json"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, tensors, settings, says) -> None:
    save(tmp_path, DIALECTS["bart"])
    assert says in refusal(change(tmp_path, tensors, **settings))


def test_tensors_without_use_are_named_in_a_warning(tmp_path) -> None:
    model = save(tmp_path, DIALECTS["bart"])
    change(tmp_path, {"model.adapter.weight": np.zeros(3, np.float32)})
    with pytest.warns(UserWarning, match=r"not part of this bart and not used: adapter\.weight\."):
        found = npgpt.from_pretrained(tmp_path)
    assert_same(found.params, model.params)


def test_values_that_are_not_finite_are_named_in_a_warning(tmp_path) -> None:
    save(tmp_path, DIALECTS["bart"])
    change(tmp_path, {"model.shared.weight": np.full((19, 12), np.nan, np.float32)})
    with pytest.warns(UserWarning, match=r"NaN or infinite values in shared\.weight\."):
        found = npgpt.from_pretrained(tmp_path)
    assert np.isnan(found.params["shared.weight"]).all()


def test_generation_config_overrules_config(tmp_path) -> None:
    save(tmp_path, {**DIALECTS["marian"], "num_beams": 2, "max_length": 30})
    path = tmp_path / "generation_config.json"
    path.write_text('{"num_beams": 4, "bad_words_ids": [[18]], "top_k": 5}', encoding="utf-8")
    config = npgpt.from_pretrained(tmp_path).config
    assert (config.num_beams, config.max_length, config.banned_ids) == (4, 30, (18,))
    assert "top_k" not in config.other


@pytest.mark.parametrize("model_type", ["t5", 5, None])
def test_other_models_are_refused_with_the_names_of_those_that_load(tmp_path, model_type) -> None:
    save(tmp_path)
    text = refusal(change(tmp_path, model_type=model_type))
    assert f"model_type is {model_type!r}, but npgpt knows gpt2, llama, bert, bart, marian" in text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shared.weight": None}, "disagree about shared.weight"),
        ({"lm_head.weight": np.zeros((19, 12), np.float32)}, "disagree about lm_head.weight"),
        ({LAST: np.zeros(13, np.float32)}, f"'{LAST}' has shape [13]"),
        ({LAST: np.zeros(12)}, "float32, float64"),
    ],
)
def test_parameters_that_do_not_fit_are_not_saved(tmp_path, changes, says) -> None:
    model = random_transformer(np.random.default_rng(8), np.float32)
    params = {n: a for n, a in {**model.params, **changes}.items() if a is not None}
    with pytest.raises(ValueError, match="Not saved") as caught:
        Transformer(model.config, params).save_pretrained(tmp_path / "new")
    assert says in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_a_file_where_the_folder_should_be_is_named(tmp_path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(OSError, match="taken cannot be made a folder"):
        save(tmp_path / "taken")


@pytest.mark.hf
@pytest.mark.parametrize("dialect", ["bart", "marian", "two tables"])
def test_transformers_loads_what_is_saved(hf, tmp_path, dialect) -> None:
    import torch
    import transformers

    model = save(tmp_path, DIALECTS[dialect])
    classes = {"bart": transformers.BartForConditionalGeneration}
    load = classes.get(dialect, transformers.MarianMTModel).from_pretrained
    reference, info = load(tmp_path, output_loading_info=True, attn_implementation="eager")
    assert not any(info.values()), info
    ids, target = [3, 4, 5], [1, 6]
    with torch.no_grad():
        want = reference.eval()(torch.tensor([ids]), decoder_input_ids=torch.tensor([target]))
    got = model(ids, target)
    assert np.abs(got - want.logits[0].numpy()).max() < 1e-5 * np.abs(got).max()


@pytest.mark.hf
@pytest.mark.parametrize("dialect", ["bart", "marian", "two tables"])
def test_what_transformers_saves_is_loaded(hf, tmp_path, dialect) -> None:
    from tests.goldens.make_transformer import reference_model, reference_params

    reference = reference_model({**DIALECTS[dialect], "pad_token_id": 1}, 2, "float32")
    reference.save_pretrained(tmp_path)
    found = npgpt.from_pretrained(tmp_path)
    assert_same(found.params, reference_params(reference))
