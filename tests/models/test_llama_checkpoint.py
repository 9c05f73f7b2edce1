"""What is Llama's own in a checkpoint: rotary angles, padded rows, biases that it has not."""

from __future__ import annotations

import numpy as np
import pytest

import npgpt
from tests.builders.checkpoints import assert_same, change
from tests.builders.llama import random_llama


@pytest.fixture
def saved(rng, tmp_path):
    random_llama(rng, np.float32).save_pretrained(tmp_path)
    return tmp_path


def test_stored_angles_are_dropped(saved) -> None:
    want = npgpt.from_pretrained(saved).params
    change(saved, {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(2, np.float32)})
    assert_same(npgpt.from_pretrained(saved).params, want)


def test_padded_rows_are_kept_and_never_generated(saved) -> None:
    model = npgpt.from_pretrained(change(saved, vocab_size=2))
    assert (model.rows, model.config.vocab_size) == (19, 2)
    assert set(model.generate([1], 8)) <= {0, 1}


def test_a_table_smaller_than_vocab_size_is_trusted_with_a_warning(saved) -> None:
    with pytest.warns(UserWarning, match=r"embed_tokens\.weight has 19 rows, but vocab_size is 30"):
        assert npgpt.from_pretrained(change(saved, vocab_size=30)).config.vocab_size == 19


BIAS, NORM = "layers.1.self_attn.q_proj.bias", "layers.0.self_attn.k_norm.weight"


@pytest.mark.parametrize(
    ("tensors", "settings", "sentence"),
    [
        (
            {f"model.{BIAS}": np.zeros(24)},
            {},
            f"has '{BIAS}', but config.json asks for no such bias",
        ),
        ({f"model.{NORM}": np.zeros(4)}, {}, f"has '{NORM}', but .* norm, which a qwen3 has"),
        ({}, {"attention_bias": True}, f"lacks .*{BIAS[9:]}"),
        ({}, {"model_type": "mamba"}, "model_type is 'mamba', but npgpt knows gpt2, llama"),
    ],
)
def test_refused_in_one_sentence(saved, tensors, settings, sentence) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        npgpt.from_pretrained(change(saved, tensors, **settings))
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)


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
