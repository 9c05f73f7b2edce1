"""Checkpoints go to transformers and come from it unchanged, tied and untied, with equal logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npgpt.models.auto import from_pretrained
from npgpt.models.gpt2.checkpoint import load_checkpoint, save_checkpoint
from npgpt.models.gpt2.model import GPT2
from tests.builders.checkpoints import SMALL, assert_same, random_params

pytestmark = pytest.mark.hf

IDS = [3, 1, 4, 1, 5]


def hf_model(tied: bool, **sizes: Any) -> Any:
    """A random GPT2LMHeadModel of transformers, biases and gains random too."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    own = {"vocab_size": 11, "n_positions": 5, "n_embd": 6, "n_layer": 2, "n_head": 2}
    config = GPT2Config(**{**own, **sizes}, tie_word_embeddings=tied, attn_implementation="eager")
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.7)
    return model


def hf_logits(model: Any) -> np.ndarray:
    import torch

    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0].numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tied", [True, False])
def test_transformers_loads_what_is_saved(hf, tmp_path, tied, dtype):
    import torch
    from transformers import GPT2LMHeadModel

    config = replace(SMALL, tie_word_embeddings=tied)
    params = random_params(config, dtype)
    save_checkpoint(tmp_path, config, params)
    model, info = GPT2LMHeadModel.from_pretrained(
        tmp_path, output_loading_info=True, dtype="auto", attn_implementation="eager"
    )
    assert not any(info.values()), info
    assert model.dtype == getattr(torch, dtype)
    state = {name.removeprefix("transformer."): a.numpy() for name, a in model.state_dict().items()}
    assert_same({name: state[name] for name in params}, params)
    assert model.lm_head.weight.data_ptr() == model.transformer.wte.weight.data_ptr() or not tied
    wanted = hf_logits(model.eval())
    error = np.linalg.norm(GPT2(config, params)(IDS) - wanted) / np.linalg.norm(wanted)
    assert error < {"float32": 1e-6, "float64": 1e-13}[dtype]


@pytest.mark.parametrize("tied", [True, False])
def test_what_transformers_saves_is_loaded(hf, tmp_path, tied):
    model = hf_model(tied)
    model.save_pretrained(tmp_path)
    config, params = load_checkpoint(tmp_path)
    state = {name.removeprefix("transformer."): a.numpy() for name, a in model.state_dict().items()}
    if tied:
        del state["lm_head.weight"]
    assert_same(params, state)
    wanted = hf_logits(model)
    error = np.linalg.norm(GPT2(config, params)(IDS) - wanted) / np.linalg.norm(wanted)
    assert error < 1e-6


def test_the_bare_model_and_shards_of_transformers_are_loaded(hf, tmp_path):
    model = hf_model(tied=True, n_embd=64)
    model.save_pretrained(tmp_path / "whole")
    model.transformer.save_pretrained(tmp_path / "bare")
    model.save_pretrained(tmp_path / "shards", max_shard_size="100KB")
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 1
    wanted = load_checkpoint(tmp_path / "whole")[1]
    assert_same(load_checkpoint(tmp_path / "bare")[1], wanted)
    assert_same(load_checkpoint(tmp_path / "shards")[1], wanted)


def test_a_padded_vocabulary_saved_again_is_loaded_by_transformers(hf, tmp_path):
    from transformers import GPT2LMHeadModel

    params = random_params(replace(SMALL, vocab_size=16))
    save_checkpoint(tmp_path, SMALL, params)
    model, info = GPT2LMHeadModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert model.config.vocab_size == 16


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_of_transformers_is_exact(hf, tmp_path, dtype):
    import torch

    model = hf_model(tied=True).to(getattr(torch, dtype))
    model.save_pretrained(tmp_path)
    state = model.transformer.state_dict()
    assert_same(from_pretrained(tmp_path).params, {n: a.float().numpy() for n, a in state.items()})
