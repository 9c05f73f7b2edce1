"""What is the encoder-decoder's own in a checkpoint: dialects, shared tables, sinusoids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt.models.auto import MODEL_TYPES
from npgpt.models.transformer.model import Transformer
from npgpt.ops.sinusoids import sinusoids_in_halves
from tests.builders.checkpoints import assert_same, change
from tests.builders.transformer import DIALECTS, random_transformer


def save(folder: Path, options: dict[str, Any] | None = None) -> Transformer:
    """A random float32 model in a folder."""
    model = random_transformer(np.random.default_rng(8), np.float32, **(options or {}))
    model.save_pretrained(folder)
    return model


def refusal(folder: Path) -> str:
    with pytest.raises(ValueError, match=r"(safetensors|config\.json): ") as caught:
        npgpt.from_pretrained(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("options", DIALECTS.values(), ids=list(DIALECTS))
def test_every_dialect_is_loaded_as_it_was_saved(tmp_path, options) -> None:
    model = save(tmp_path, options)
    found = npgpt.from_pretrained(tmp_path)
    assert isinstance(found, Transformer)
    assert_same(found.params, model.params)
    assert found.config.model_type == model.config.model_type
    np.testing.assert_allclose(found([3, 4, 5], [1, 6]), model([3, 4, 5], [1, 6]), atol=1e-5)


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
    ("settings", "says"),
    [
        ({"encoder_layers": 1}, "but encoder_layers is 1 in config.json"),
        ({"encoder_ffn_dim": 11}, "has shape [10, 12], but by config.json it must have [11, 12]"),
        ({"vocab_size": 20}, "'shared.weight' has shape [19, 12], but by config.json it must"),
    ],
)
def test_settings_that_do_not_fit_are_named(tmp_path, settings, says) -> None:
    save(tmp_path, DIALECTS["bart"])
    assert says in refusal(change(tmp_path, **settings))


def test_generation_config_overrules_config(tmp_path) -> None:
    save(tmp_path, {**DIALECTS["marian"], "num_beams": 2, "max_length": 30})
    found = npgpt.from_pretrained(tmp_path).generation
    assert (found.num_beams, found.max_length, found.eos_token_id) == (2, 30, 2)
    said = '{"num_beams": 4, "bad_words_ids": [[18]], "top_k": null, "eos_token_id": [2, 3]}'
    (tmp_path / "generation_config.json").write_text(said, encoding="utf-8")
    model = npgpt.from_pretrained(tmp_path)
    found = model.generation
    assert (found.num_beams, found.bad_words_ids, found.eos_token_id) == (4, [[18]], [2, 3])
    assert (found.max_length, found.top_k) == (None, 50)
    assert (model.config.eos_token_id, model.config.other["num_beams"]) == (2, 2)


@pytest.mark.parametrize("model_type", ["t5", 5])
def test_other_models_are_refused_with_the_names_of_those_that_load(tmp_path, model_type) -> None:
    save(tmp_path)
    text = refusal(change(tmp_path, model_type=model_type))
    assert f"model_type is {model_type!r}, but npgpt knows {', '.join(MODEL_TYPES)}" in text
    near = "; t5 has scores with a term for the distance of two tokens; nearest is bart."
    assert text.endswith(near) == (model_type == "t5")
    assert "has neither a model_type, nor arch" in refusal(change(tmp_path, model_type=None))


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
    from tests.goldens.transformer import reference_model, reference_params

    reference = reference_model({**DIALECTS[dialect], "pad_token_id": 1}, 2, "float32")
    reference.save_pretrained(tmp_path)
    found = npgpt.from_pretrained(tmp_path)
    assert_same(found.params, reference_params(reference))
