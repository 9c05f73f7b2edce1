"""Odd settings: configurations, names, texts and numbers of training that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import npgpt
from npgpt.text.tokenizer import Tokenizer
from npgpt.train.masking import mask_tokens
from npgpt.train.optim import adamw_step, clip_gradients, muon_step, new_adamw_state
from npgpt.train.windows import training_batch
from tests.builders import bert, gpt2, llama, transformer
from tests.builders.gpt2 import random_gpt2, write_tiny_gpt2
from tests.odd import (
    NAN,
    NO_COUNTS,
    NO_INTEGERS,
    NO_PATHS,
    NO_REALS,
    NO_STOPS,
    RAGGED,
    Odd,
    sentence,
)

CONFIGS: list[tuple[Any, dict[str, Any], str]] = [
    (npgpt.GPT2Config, gpt2.SIZES, "n_embd n_layer n_head n_positions vocab_size"),
    (npgpt.LlamaConfig, llama.SIZES, "hidden_size num_hidden_layers num_attention_heads"),
    (npgpt.BERTConfig, bert.SIZES, "hidden_size num_hidden_layers type_vocab_size"),
    (npgpt.TransformerConfig, transformer.SIZES, "d_model encoder_layers decoder_attention_heads"),
]
ODD_CONFIGS: list[tuple[Any, dict[str, Any], str]] = [
    *((c, {name: v}, name) for c, _, names in CONFIGS for name in names.split() for v in NO_COUNTS),
    *((c, {name: 0}, name) for c, _, names in CONFIGS for name in names.split()),
    (npgpt.GPT2Config, {"n_embd": 10, "n_head": 3}, "n_embd 10 cannot be cut into n_head 3 heads"),
    (npgpt.GPT2Config, {"n_embd": 10}, "n_embd 10 cannot be cut"),
    (npgpt.GPT2Config, {"activation_function": "mish"}, "activation_function"),
    (npgpt.GPT2Config, {"attn_pdrop": 1.5}, "attn_pdrop"),
    (npgpt.GPT2Config, {"embd_pdrop": np.float32(1.5)}, "embd_pdrop"),
    (npgpt.GPT2Config, {"layer_norm_epsilon": 10**400}, "layer_norm_epsilon"),
    (npgpt.GPT2Config, {"tie_word_embeddings": "false"}, "tie_word_embeddings"),
    (npgpt.GPT2Config, {"initializer_range": "0.02"}, "initializer_range"),
    (npgpt.GPT2Config, {"eos_token_id": [1.5]}, "eos_token_id"),
    (npgpt.LlamaConfig, {"num_key_value_heads": 4}, "num_key_value_heads 4"),
    (npgpt.LlamaConfig, {"head_dim": 3}, "a head is 3 wide"),
    (npgpt.LlamaConfig, {"rope_scaling": {"rope_type": "yarn"}}, "rope_type 'yarn'"),
    (npgpt.LlamaConfig, {"rope_scaling": {"rope_type": "linear"}}, "needs factor"),
    (npgpt.LlamaConfig, {"rope_scaling": 2.0}, "rope_scaling"),
    (npgpt.LlamaConfig, {"rope_scaling": {"rope_type": None, "factor": 2.0}}, "rope_type None"),
    (npgpt.BERTConfig, {"hidden_size": 10}, "hidden_size 10 cannot be cut"),
    (npgpt.BERTConfig, {"hidden_act": None}, "hidden_act"),
    (npgpt.TransformerConfig, {"model_type": "t5"}, "model_type"),
    (npgpt.TransformerConfig, {"d_model": 9}, "d_model 9 cannot be cut"),
    (npgpt.TransformerConfig, {"decoder_vocab_size": 5}, "decoder_vocab_size 5"),
]


def test_a_configuration_that_cannot_be_is_refused_wherever_it_is_made() -> None:
    sizes = {
        config: {name: size for name, size in given.items() if hasattr(config, name)}
        for config, given, _ in CONFIGS
    }
    for config, settings, says in ODD_CONFIGS:
        text = sentence(config, **{**sizes[config], **settings})
        assert says in text
        raw = {**sizes[config], **settings}
        from_file = sentence(config.from_dict, raw, "a/config.json")
        assert from_file.startswith("a/config.json: ")


def test_numbers_of_numpy_in_a_configuration_become_pythons(tmp_path) -> None:
    """json writes no np.int64."""
    sizes: dict[str, Any] = {name: np.int64(size) for name, size in gpt2.SIZES.items()}
    config = npgpt.GPT2Config(**sizes, layer_norm_epsilon=np.float64(1e-5))
    assert config == gpt2.tiny_gpt2_config()
    npgpt.GPT2(config, random_gpt2(np.random.default_rng(0)).params).save_pretrained(tmp_path)
    assert npgpt.from_pretrained(tmp_path).config.n_embd == 12


def test_names_revisions_and_dtypes_of_from_pretrained(tmp_path) -> None:
    folder = write_tiny_gpt2(tmp_path / "model")
    for name in NO_PATHS:
        assert "the name of a model" in sentence(npgpt.from_pretrained, name)
        assert "the name of a model" in sentence(npgpt.load_tokenizer, name)
    for revision in (5, b"main", "", True, Odd()):
        for load in (npgpt.from_pretrained, npgpt.load_tokenizer):
            assert "revision" in sentence(load, folder, revision=revision)
    for dtype in ("float16", "fp32", np.float16, int, None, 32, Odd(), [np.float32]):
        assert "dtype" in sentence(npgpt.from_pretrained, folder, dtype=dtype)
    for same in (float, "float64", np.float64, np.dtype("f8"), "<f8"):
        assert npgpt.from_pretrained(folder, dtype=same).params["wte.weight"].dtype == np.float64


def test_what_is_no_text_and_no_id_for_a_tokenizer(tmp_path) -> None:
    tokenizer = npgpt.load_tokenizer(write_tiny_gpt2(tmp_path / "model"))
    assert isinstance(tokenizer, Tokenizer)
    for text in (None, b"abc", 5, NAN, ["a"], Odd()):
        for encode in (tokenizer.encode, tokenizer.encode_ordinary, tokenizer.encode_to_numpy):
            assert "text must be a str" in sentence(encode, text)
    no_ids: list[Any] = [None, 5, "12", [1.0], [None], ["1"], [[1]], NAN, Odd(), np.ones(2)]
    for ids in (*no_ids, np.ones(2, bool)):
        for decode in (tokenizer.decode, tokenizer.decode_bytes):
            assert "tokens must be a list of ids" in sentence(decode, ids)
    for unknown in ([-1], [257], [2**70], np.array([2**64 - 1], "u8")):
        assert "has no token" in sentence(tokenizer.decode, unknown)
    ids_of_ab: list[Any] = [[97, 98], (97, 98), np.array([97, 98], "u1"), range(97, 99)]
    for same in (*ids_of_ab, iter([97, 98])):
        assert tokenizer.decode(same) == "ab"


def test_what_training_cannot_be_asked_for() -> None:
    model, rng = random_gpt2(np.random.default_rng(0)), np.random.default_rng(0)
    loss_grads = model.loss_and_grads([1, 2], [2, 3])[1]
    state, before = new_adamw_state(model.params), {n: p.copy() for n, p in model.params.items()}
    functions: dict[Callable[..., Any], tuple[dict[str, Any], dict[str, list[Any]]]] = {
        training_batch: (
            {"ids": np.arange(50), "first": 0, "count": 2, "context": 4, "seed": 0},
            {
                "ids": [*RAGGED, [1.0] * 50, [[1] * 50], "x", np.ones(50, bool), [None] * 50],
                "first": NO_COUNTS,
                "count": [*NO_COUNTS, 0],
                "context": [*NO_COUNTS, 0],
                "seed": NO_COUNTS,
            },
        ),
        mask_tokens: (
            {"ids": [1, 2, 3], "rng": rng, "mask_id": 4, "vocab_size": 9},
            {
                "ids": [*RAGGED, *NO_INTEGERS],
                "mask_id": NO_COUNTS,
                "vocab_size": [*NO_COUNTS, 0],
                "special_ids": NO_STOPS,
                "fraction": [*NO_REALS, 2, -0.1],
            },
        ),
        clip_gradients: ({"grads": {}, "max_norm": 1.0}, {"max_norm": [*NO_REALS, -1]}),
        adamw_step: (
            {"params": model.params, "grads": loss_grads, "state": state, "step": 1, "lr": 0.1},
            {
                "step": [*NO_COUNTS, 0],
                "beta1": [*NO_REALS, 1.0],
                "beta2": [*NO_REALS, 1.0],
                **{name: [*NO_REALS, -0.1] for name in ("lr", "weight_decay", "eps")},
                "grads": [{**loss_grads, "wpe.weight": np.ones((1, 12))}],
            },
        ),
        muon_step: (
            {"params": model.params, "grads": loss_grads, "state": state, "step": 1, "lr": 0.1},
            {
                "step": [*NO_COUNTS, 0],
                **{name: [*NO_REALS, 1.0] for name in ("momentum", "beta1", "beta2")},
                **{name: [*NO_REALS, -0.1] for name in ("lr", "weight_decay")},
                "grads": [{**loss_grads, "h.0.mlp.c_fc.weight": np.ones((1, 12))}],
            },
        ),
    }
    for function, (given, odd) in functions.items():
        for name, values in odd.items():
            for value in values:
                text = sentence(function, **{**given, name: value})
                assert ("gradient" if name == "grads" else name) in text
    assert all((model.params[name] == before[name]).all() for name in before)
