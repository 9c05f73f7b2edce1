"""GPT-Neo: against transformers, its window, its cache, its files, its settings."""

from __future__ import annotations

import json
import warnings
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt.describe import command as describe
from npgpt.files.safetensors_file import read_tensors, write_tensors
from npgpt.models.auto import model_type
from npgpt.models.gpt2.model import GPT2
from npgpt.models.gpt_neo.config import GPTNeoConfig
from npgpt.models.gpt_neo.model import GPTNeo
from npgpt.ops.cross_entropy import cross_entropy_forward
from tests.builders.checkpoints import assert_same
from tests.builders.gpt_neo import SIZES, random_gpt_neo
from tests.goldens import gpt_neo, live
from tests.gradcheck import check_close, check_direction, relative_error

B, T = 3, 9


def random_options(rng: np.random.Generator) -> dict[str, Any]:
    """Settings that make a difference to results, at random."""
    H, d_h, L = int(rng.choice([1, 2, 3])), int(rng.choice([3, 4, 6])), int(rng.choice([1, 2, 4]))
    kinds = [str(kind) for kind in rng.choice(["global", "local"], L)]
    return {
        "vocab_size": 19,
        "max_position_embeddings": 16,
        "hidden_size": H * d_h,
        "num_heads": H,
        "num_layers": L,
        "attention_types": [[kinds, 1]] if L < 4 else [[["local"], 3], [["global"], 1]],
        "window_size": int(rng.choice([1, 2, 3, 5, 40])),
        "intermediate_size": [None, 10, 29][rng.integers(3)],
        "activation_function": str(rng.choice(["gelu_new", "gelu", "relu", "silu"])),
        "layer_norm_epsilon": float(rng.choice([1e-5, 1e-2])),
        "tie_word_embeddings": bool(rng.integers(2)),
    }


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
@pytest.mark.parametrize("seed", range(12))
def test_outputs_and_gradients_as_transformers(seed) -> None:
    """Texts longer than the window, padded on either side; float64 all the way."""
    options = random_options(np.random.default_rng(seed))
    lengths, side = ([16, 11, 3], "left") if seed % 3 == 0 else ([12, 5][: 1 + seed % 2], "right")
    got, want = live(gpt_neo, options, lengths, side, gpt_neo.in_float64)
    check_close(got, want, 1e-11)
    if len(lengths) == 1:  # else the mask's 1e308 is infinite in float32
        got, want = live(gpt_neo, options, lengths, side, nullcontext)
        assert relative_error(got["logits"], want["logits"]) < 2e-6


@pytest.mark.hf
@pytest.mark.parametrize("side", ["alone", "left"])
def test_greedy_text_with_a_cache(hf, side) -> None:
    import torch

    lengths = [5] if side == "alone" else [5, 2, 4]
    options = {**SIZES, "max_position_embeddings": 20, "tie_word_embeddings": False}
    reference = gpt_neo.reference_model(options, 5)
    reference.lm_head.weight.data.normal_()
    config = GPTNeoConfig.from_dict(reference.config.to_dict())
    model = GPTNeo(config, gpt_neo.reference_params(reference))
    given = gpt_neo.random_input(options, lengths, "left", np.random.default_rng(6))
    want = reference.float().generate(
        torch.tensor(given["ids"]),
        attention_mask=torch.tensor(given["attention_mask"]),
        max_new_tokens=11,
        do_sample=False,
        use_cache=True,
        pad_token_id=0,
    )[:, 5:]
    got = np.stack([*model.generate(given["ids"], 11, attention_mask=given["attention_mask"])], 1)
    assert got.tolist() == want.tolist()
    assert len({*got[0].tolist()}) > 2


def test_every_gradient_predicts_the_change_of_the_loss(rng) -> None:
    model = random_gpt_neo(rng)
    ids, targets = rng.integers(0, 19, (2, B, T))
    loss, grads = model.loss_and_grads(ids, targets)
    plain_loss, plain = model.loss_and_grads(ids, targets, flash=False)
    assert loss == pytest.approx(plain_loss, rel=1e-12)
    check_close(grads, plain, 1e-11)

    def loss_fn(params):
        return float(cross_entropy_forward(GPTNeo(model.config, params)(ids), targets)[0])

    check_direction(loss_fn, model.params, grads, rng)


@pytest.mark.parametrize("chunks", [(1,) * T, (4, 5), (2, 1, 6)])
def test_a_cache_in_chunks_gives_what_a_whole_pass_does(rng, chunks) -> None:
    model, ids = random_gpt_neo(rng), rng.integers(0, 19, (2, T))
    kv, at, logits = model.new_kv_cache((2,)), 0, []
    for length in chunks:
        logits.append(model(ids[:, at : at + length], kv=kv))
        at += length
    np.testing.assert_allclose(np.concatenate(logits, axis=1), model(ids), rtol=0, atol=1e-12)


def test_padding_changes_nothing(rng) -> None:
    """By index, a window of real tokens is the same wherever the padding stands before it."""
    model, ids = random_gpt_neo(rng), rng.integers(0, 19, 6)
    alone = model(ids)
    for left in (0, 3, 5):
        padded = np.concatenate([np.zeros(left, int), ids])
        got = model(padded, np.arange(len(padded)) >= left)
        np.testing.assert_allclose(got[left:], alone, rtol=0, atol=1e-12)


def test_a_local_block_sees_no_further_than_its_window(rng) -> None:
    model, ids = random_gpt_neo(rng), rng.integers(0, 19, T)
    near, far = (model.forward(ids).saved.blocks[n].attn.probs for n in (1, 0))
    i, j = np.indices((T, T))
    assert (near[:, (j > i) | (j <= i - 4)] == 0).all()
    assert (near[:, (j <= i) & (j > i - 4)] > 0).all()
    assert (far[:, j <= i] > 0).all()


def test_without_windows_and_with_the_scale_it_is_a_gpt2(rng) -> None:
    """The same parameters, put side by side as GPT-2 stores them."""
    neo = random_gpt_neo(rng, attention_types=[[["global"], 2]])
    params = dict(neo.params)
    for n in range(2):
        attn = f"h.{n}.attn."
        W = [params.pop(f"{attn}attention.{part}_proj.weight") for part in "qkv"]
        params[f"{attn}c_attn.weight"] = np.concatenate(W, axis=1)
        params[f"{attn}c_attn.bias"] = np.zeros(36)
        for kind in ("weight", "bias"):
            params[f"{attn}c_proj.{kind}"] = params.pop(f"{attn}attention.out_proj.{kind}")
    sizes = {name: getattr(neo.config, name) for name in ("vocab_size", "n_positions", "n_embd")}
    config = npgpt.GPT2Config(**sizes, n_layer=2, n_head=3, scale_attn_weights=False)
    ids = rng.integers(0, 19, T)
    np.testing.assert_allclose(GPT2(config, params)(ids), neo(ids), rtol=0, atol=1e-12)


def test_float32_stays_float32(rng) -> None:
    model = random_gpt_neo(rng, np.float32, attention_dropout=0.1, resid_dropout=0.1)
    ids = rng.integers(0, 19, (2, T))
    loss, grads = model.loss_and_grads(ids, ids, rng=rng)
    assert {np.asarray(a).dtype for a in (loss, model(ids), *grads.values())} == {
        np.dtype(np.float32)
    }


@pytest.mark.hf
@pytest.mark.parametrize("tied", [True, False])
def test_transformers_loads_what_is_saved_and_the_other_way_round(hf, tmp_path, rng, tied) -> None:
    import transformers

    model = random_gpt_neo(rng, tie_word_embeddings=tied)
    model.save_pretrained(tmp_path)
    theirs, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, output_loading_info=True, dtype="auto", attn_implementation="eager"
    )
    assert not any(info.values()), info
    assert_same(gpt_neo.reference_params(theirs), model.params)
    assert theirs.config.attention_layers == ["global", "local"]
    theirs.save_pretrained(tmp_path)
    again = npgpt.from_pretrained(tmp_path, dtype=np.float64)
    assert isinstance(again, GPTNeo)
    assert_same(again.params, model.params)
    assert replace(again.config, other={}) == replace(model.config, other={})


def test_the_masks_that_old_files_hold_are_no_parameters(tmp_path, rng) -> None:
    model = random_gpt_neo(rng, np.float32)
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = read_tensors(path)
    tensors["transformer.h.0.attn.attention.bias"] = np.ones((1, 1, 11, 11), bool)
    tensors["transformer.h.1.attn.attention.masked_bias"] = np.array(-1e9)
    write_tensors(path, tensors)
    assert_same(npgpt.from_pretrained(tmp_path).params, model.params)


# What gpt-neo-125m and TinyStories-33M say.
PUBLISHED: list[dict[str, Any]] = [
    {
        "activation_function": "gelu_new",
        "architectures": ["GPTNeoForCausalLM"],
        "attention_dropout": 0,
        "attention_layers": ["global", "local"] * 6,
        "attention_types": [[["global", "local"], 6]],
        "bos_token_id": 50256,
        "embed_dropout": 0,
        "eos_token_id": 50256,
        "gradient_checkpointing": False,
        "hidden_size": 768,
        "initializer_range": 0.02,
        "intermediate_size": None,
        "layer_norm_epsilon": 1e-05,
        "max_position_embeddings": 2048,
        "num_heads": 12,
        "num_layers": 12,
        "resid_dropout": 0,
        "summary_activation": None,
        "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True,
        "summary_type": "cls_index",
        "summary_use_proj": True,
        "use_cache": True,
        "vocab_size": 50257,
        "window_size": 256,
    },
    {
        "attention_layers": ["global", "local", "global", "local"],
        "attention_types": [[["global", "local"], 2]],
        "classifier_dropout": 0.1,
        "hidden_size": 768,
        "num_heads": 16,
        "num_layers": 4,
    },
]


@pytest.mark.parametrize("raw", PUBLISHED)
def test_what_published_models_say_is_read_and_written_without_a_warning(raw) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = GPTNeoConfig.from_dict({"model_type": "gpt_neo", **raw})
        written = config.to_dict()
        assert GPTNeoConfig.from_dict(written).windows == config.windows
    assert written.items() >= raw.items()
    assert not {"n_embd", "scale_attn_weights"} & written.keys()
    assert config.windows == [None, 256] * (config.n_layer // 2)


@pytest.mark.hf
def test_transformers_defaults_are_ours_and_it_knows_no_other_key(hf) -> None:
    import transformers

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = GPTNeoConfig.from_dict(transformers.GPTNeoConfig().to_dict())
    assert replace(config, other={}) == GPTNeoConfig()


def test_blocks_listed_one_by_one_and_other_names_of_sizes() -> None:
    raw = {"attention_layers": ["local", "global", "local"], "num_hidden_layers": 3}
    config = GPTNeoConfig.from_dict({**raw, "num_attention_heads": 4, "window_size": 5})
    assert (config.windows, config.n_head, config.n_layer) == ([5, None, 5], 4, 3)
    with pytest.warns(UserWarning, match="npgpt does not know n_embd, which may change results"):
        assert GPTNeoConfig.from_dict({"n_embd": 8}).n_embd == 2048


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"num_layers": 12}, "are 24 blocks, but num_layers is 12."),
        ({"hidden_size": 10, "num_heads": 3}, "hidden_size 10 cannot be cut into num_heads 3"),
        ({"hidden_size": "10"}, "hidden_size is '10', but must be a positive integer"),
        ({"window_size": 0}, "window_size is 0, but must be a positive integer"),
        ({"attention_types": [[["global", "banded"], 12]]}, 'must be like [[["global", "local"]'),
        ({"attention_types": [["global", 24]]}, 'but must be like [[["global", "local"], 12]].'),
        ({"attention_types": [[[["global"]], 24]]}, 'but must be like [[["global", "local"], 12'),
        ({"attention_types": [[["global"], 10**9]]}, "are 1000000000 blocks, but num_layers is 24"),
        ({"attention_types": [[["global"], -24]]}, "must be like"),
        ({"attention_layers": ["global"] * 24, "attention_types": [[["local"], 24]]}, "are not th"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder is set, but"),
        ({"scale_attn_weights": True}, "scale_attn_weights is set, but a GPT-Neo scales no scores"),
        ({"model_type": "gpt_neox"}, "model_type is 'gpt_neox', but must be 'gpt_neo'"),
    ],
)
def test_what_cannot_be_followed_is_refused(raw, says) -> None:
    with pytest.raises(ValueError, match=r"^a/config\.json: ") as caught:
        GPTNeoConfig.from_dict(raw, "a/config.json")
    assert says in str(caught.value)


def test_without_model_type_the_class_says_which_it_is(tmp_path, capsys, rng) -> None:
    random_gpt_neo(rng, np.float32).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    raw = json.loads(path.read_text())
    del raw["model_type"]
    path.write_text(json.dumps(raw), encoding="utf-8")
    assert model_type(tmp_path) == "gpt_neo"
    assert isinstance(npgpt.from_pretrained(tmp_path), GPTNeo)
    assert describe.main([str(path)]) == 0
    capsys.readouterr()
