"""Llama checkpoints: saved, loaded, and refused where something does not fit."""

from __future__ import annotations

import json

import numpy as np
import pytest

import npgpt
from npgpt.files.safetensors_file import read_tensors, write_tensors
from npgpt.models.llama.model import Llama
from tests.models.tiny_llama import random_llama


def changed(folder, change, **settings):
    """The folder with its tensors as `change` leaves them, and config.json with these settings."""
    tensors = read_tensors(folder / "model.safetensors")
    change(tensors)
    write_tensors(folder / "model.safetensors", tensors)
    path = folder / "config.json"
    raw = {**json.loads(path.read_text(encoding="utf-8")), **settings}
    path.write_text(json.dumps(raw), encoding="utf-8")
    return folder


@pytest.fixture
def saved(rng, tmp_path):
    random_llama(rng, np.float32).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_saved_parameters_load_again(rng, tmp_path, tied, dtype) -> None:
    scaling = {"rope_type": "linear", "factor": 2.0}
    model = random_llama(rng, np.float32, tie_word_embeddings=tied, rope_scaling=scaling)
    model.save_pretrained(tmp_path)
    loaded = npgpt.from_pretrained(tmp_path, dtype=dtype)
    assert isinstance(loaded, Llama)
    assert loaded.config.to_dict().items() >= model.config.to_dict().items()
    assert list(loaded.params) == list(model.params)
    for name, param in loaded.params.items():
        assert param.flags.c_contiguous
        np.testing.assert_array_equal(param, model.params[name].astype(dtype), strict=True)


def test_the_file_has_hugging_faces_names_and_shapes(saved) -> None:
    shapes = {n: a.shape for n, a in read_tensors(saved / "model.safetensors").items()}
    assert len(shapes) == 2 * 9 + 3
    assert shapes["lm_head.weight"] == shapes["model.embed_tokens.weight"] == (19, 18)
    assert shapes["model.layers.1.self_attn.k_proj.weight"] == (12, 18)  # [out, in]
    assert shapes["model.layers.1.mlp.down_proj.weight"] == (18, 10)


def test_stored_angles_and_wrappers_are_dropped(saved, rng) -> None:
    want = npgpt.from_pretrained(saved)([1, 2, 3])

    def change(tensors):
        for name in list(tensors):
            tensors[f"_orig_mod.{name}"] = tensors.pop(name)
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(2, np.float32)

    np.testing.assert_array_equal(npgpt.from_pretrained(changed(saved, change))([1, 2, 3]), want)


def test_padded_rows_are_kept_and_never_generated(saved) -> None:
    model = npgpt.from_pretrained(changed(saved, lambda tensors: None, vocab_size=2))
    assert (model.rows, model.config.vocab_size) == (19, 2)
    assert set(model.generate([1], 8)) <= {0, 1}


def rename(old, new):
    return lambda tensors: tensors.update({new: tensors.pop(old)})


def put(name, array):
    return lambda tensors: tensors.update({name: array})


Q = "model.layers.1.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("change", "settings", "sentence"),
    [
        (lambda t: t.pop(Q), {}, r"lacks 'layers.1.self_attn.q_proj.weight' of shape \[24, 18\]\."),
        (lambda t: t.clear(), {}, r"lacks 'embed_tokens.weight' of shape \[19, 18\] and 20 more"),
        (lambda t: t.pop("lm_head.weight"), {}, "lacks 'lm_head.weight' .* set it to true"),
        (put(Q, np.zeros((18, 24))), {}, r"has shape \[18, 24\], but .* must have \[24, 18\]"),
        (put(Q, np.zeros((24, 18), np.int8)), {}, "is stored as I8"),
        (lambda t: None, {"num_hidden_layers": 1}, "has 'layers.1.* num_hidden_layers is 1"),
        (put(Q.replace("weight", "bias"), np.zeros(24)), {}, "q_proj.bias', but .* no biases"),
        (put("layers.1.self_attn.q_proj.weight", np.zeros(1)), {}, "are both 'layers.1"),
        (lambda t: None, {"tie_word_embeddings": True}, "'lm_head.weight' differs from 'embed_tok"),
        (lambda t: None, {"attention_bias": True}, "attention_bias is set"),
        (
            lambda t: None,
            {"model_type": "mamba"},
            "model_type is 'mamba', but npgpt knows gpt2, llama",
        ),
    ],
)
def test_refused_in_one_sentence(saved, change, settings, sentence) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        npgpt.from_pretrained(changed(saved, change, **settings))
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "settings", "sentence"),
    [
        (put("extra.weight", np.zeros(1)), {}, "not part of Llama and not used: extra.weight"),
        (lambda t: None, {"vocab_size": 30}, "embed_tokens.weight has 19 rows, but vocab_size is"),
        (put("model.norm.weight", np.full(18, np.nan)), {}, "NaN or infinite .* norm.weight"),
    ],
)
def test_warned_of(saved, change, settings, sentence) -> None:
    with pytest.warns(UserWarning, match=sentence):
        npgpt.from_pretrained(changed(saved, change, **settings))


def test_not_saved_if_it_does_not_fit(rng, tmp_path) -> None:
    model = random_llama(rng, np.float32)
    del model.params["norm.weight"]
    with pytest.raises(ValueError, match=r"disagree about norm\.weight"):
        model.save_pretrained(tmp_path)
    model.params["norm.weight"] = np.ones(7, np.float32)
    with pytest.raises(ValueError, match=r"'norm\.weight' has shape"):
        model.save_pretrained(tmp_path)


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
@pytest.mark.parametrize("tied", [False, True])
def test_transformers_reads_what_we_write_and_we_what_it_writes(rng, tmp_path, tied) -> None:
    import torch
    from transformers import LlamaForCausalLM

    from tests.models.test_llama_config import LLAMA3

    model = random_llama(
        rng, np.float32, tie_word_embeddings=tied, rope_scaling=LLAMA3, hidden_size=24
    )
    ids = rng.integers(0, 19, 7)
    model.save_pretrained(tmp_path / "ours")
    reference, info = LlamaForCausalLM.from_pretrained(
        tmp_path / "ours", output_loading_info=True, attn_implementation="eager"
    )
    assert not any(info.values())
    with torch.no_grad():
        theirs = reference(torch.tensor(ids)[None]).logits[0].numpy()
    np.testing.assert_allclose(model(ids), theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())
    reference.save_pretrained(tmp_path / "theirs")
    again = npgpt.from_pretrained(tmp_path / "theirs")
    assert again.config.rope_scaling == LLAMA3
    np.testing.assert_array_equal(again(ids), model(ids))
