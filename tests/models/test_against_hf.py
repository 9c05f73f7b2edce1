"""Every architecture against transformers, live: outputs, every gradient, and what it writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.goldens import ARCHITECTURES, bert, counted, gpt2, llama, reference_values, transformer
from tests.goldens.llama import LLAMA3
from tests.goldens.transformer import MUST, SEARCHES
from tests.gradcheck import check_close, relative_error

pytestmark = [pytest.mark.hf, pytest.mark.usefixtures("hf")]

SIZES: dict[str, dict[str, Any]] = {
    "bert": {
        "vocab_size": 31,
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 40,
        "max_position_embeddings": 16,
    },
    "gpt2": {"vocab_size": 31, "n_positions": 16, "n_embd": 24, "n_layer": 3, "n_head": 4},
    "llama": llama.SIZES,
    "transformer": {"vocab_size": 31, "d_model": 24, "encoder_layers": 2, "decoder_layers": 3},
}
BARE = {"kind": "BertModel"}
BART = {"model_type": "bart"}
MARIAN = {"model_type": "marian"}
FLOAT64 = {"bert": 1e-12, "gpt2": 1e-12, "llama": 1e-12, "transformer": 1e-11}
FLOAT32 = {"bert": 2e-5, "gpt2": 2e-5, "llama": 2e-5, "transformer": 1e-4}
FLOAT32_LOGITS = {"bert": 2e-5, "gpt2": 2e-6, "llama": 5e-6, "transformer": 2e-6}

# name -> options, lengths of the rows, the side that is padded (or lengths of the targets)
CASES: dict[str, dict[str, tuple[dict[str, Any], list[int], Any]]] = {
    "bert": {
        "bert": ({}, [7, 7], "right"),
        "padding": ({"num_attention_heads": 2}, [2, 9, 5], "right"),
        "padding on the left": ({"intermediate_size": 10, "pad_token_id": None}, [8, 3], "left"),
        "untied, three types": (
            {"tie_word_embeddings": False, "type_vocab_size": 3},
            [6, 4],
            "right",
        ),
        "relu, one head": ({"hidden_act": "relu", "num_attention_heads": 1}, [9], "right"),
        "gelu_new, eps": ({"hidden_act": "gelu_new", "layer_norm_eps": 1e-2}, [5], "right"),
        "one token": ({"hidden_act": "silu"}, [1, 1, 1], "right"),
        "pooler": ({**BARE, "pad_token_id": None}, [7, 5], "right"),
        "pooler, padding": ({**BARE, "hidden_size": 20, "hidden_act": "tanh"}, [3, 8, 1], "right"),
        "pooler, full context": (
            {**BARE, "num_hidden_layers": 1, "type_vocab_size": 1},
            [16],
            "right",
        ),
    },
    "gpt2": {
        "gpt2": ({}, [7, 7], "right"),
        "gelu, narrow": ({"activation_function": "gelu", "n_inner": 20}, [5, 5, 5], "right"),
        "relu, one head": ({"activation_function": "relu", "n_head": 1}, [9], "right"),
        "silu, one token": ({"activation_function": "silu"}, [1], "right"),
        "tanh, full context": ({"activation_function": "tanh", "n_layer": 1}, [16, 16], "right"),
        "scaled by layer": ({"scale_attn_by_inverse_layer_idx": True}, [8], "right"),
        "unscaled": ({"scale_attn_weights": False}, [8, 8], "right"),
        "both scales": (
            {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True, "n_head": 6},
            [8],
            "right",
        ),
        "untied, eps": (
            {"tie_word_embeddings": False, "layer_norm_epsilon": 1e-2},
            [6, 6],
            "right",
        ),
        "left padding": ({"activation_function": "gelu_pytorch_tanh"}, [9, 3, 6], "left"),
        "right padding": ({"n_inner": 100, "n_head": 2}, [2, 8], "right"),
        "wide, left padding": ({"n_embd": 60, "vocab_size": 11, "n_head": 12}, [1, 16], "left"),
    },
    "llama": {
        "every head its own keys": ({"num_key_value_heads": 6}, [7, 7], "right"),
        "two shared heads": ({}, [5, 5, 5], "right"),
        "one shared head": ({"num_key_value_heads": 1}, [9], "right"),
        "number of shared heads left out": ({"num_key_value_heads": None}, [6], "right"),
        "tied": ({"tie_word_embeddings": True}, [8], "right"),
        "wide heads": ({"head_dim": 14}, [8], "right"),
        "gelu, one token": ({"hidden_act": "gelu"}, [1], "right"),
        "eps": ({"rms_norm_eps": 1e-2}, [6, 6], "right"),
        "fast": ({"rope_theta": 10.0}, [16, 16], "right"),
        "linear": ({"rope_scaling": {"type": "linear", "factor": 2.5}}, [16], "right"),
        "dynamic, short": (
            {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
            [12],
            "right",
        ),
        "dynamic, long": (
            {"rope_scaling": {"rope_type": "dynamic", "factor": 3.0}},
            [29, 21],
            "left",
        ),
        "llama3": ({"rope_scaling": LLAMA3, "rope_theta": 500.0, "head_dim": 16}, [16], "right"),
        "left padding": ({"tie_word_embeddings": True}, [9, 3, 6], "left"),
        "right padding": ({"num_key_value_heads": 3}, [2, 8], "right"),
        "one layer, left padding": ({"num_hidden_layers": 1, "vocab_size": 31}, [1, 16], "left"),
    },
    "transformer": {
        "bart": (BART, [7, 7], [5, 5]),
        "bart, padded": (BART, [9, 3, 6], [2, 8, 5]),
        "bart, scaled, relu": (
            {**BART, "scale_embedding": True, "activation_function": "relu"},
            [5],
            [4],
        ),
        "bart, starts with padding": (
            {**BART, "decoder_start_token_id": 1, "activation_function": "gelu_new"},
            [6, 2],
            [1, 3],
        ),
        "bart, three tables": ({**BART, "tie_word_embeddings": False}, [4, 8], [7, 3]),
        "bart, all positions": ({**BART, "encoder_attention_heads": 1}, [17], [17]),
        "marian": ({**MARIAN, "decoder_start_token_id": 1}, [7, 7], [5, 5]),
        "marian as published": (
            {
                **MARIAN,
                "scale_embedding": True,
                "activation_function": "swish",
                "decoder_start_token_id": 1,
            },
            [9, 3, 6],
            [2, 8, 5],
        ),
        "marian, two tables": (
            {**MARIAN, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 13},
            [3, 5],
            [6, 4],
        ),
        "marian, three tables": (
            {
                **MARIAN,
                "share_encoder_decoder_embeddings": False,
                "decoder_vocab_size": 13,
                "tie_word_embeddings": False,
                "encoder_attention_heads": 12,
            },
            [3, 5],
            [6, 4],
        ),
        "marian, odd width": (
            {
                **MARIAN,
                "d_model": 15,
                "decoder_attention_heads": 5,
                "activation_function": "tanh",
                "decoder_layers": 1,
            },
            [1, 6],
            [1, 2],
        ),
    },
}
IN_FLOAT32 = {
    "bert": ["bert", "padding", "pooler, padding"],
    "gpt2": ["gpt2", "gelu, narrow", "left padding"],
    "llama": ["two shared heads", "left padding", "llama3"],
    "transformer": ["bart, padded", "marian as published"],
}


def each_case(cases: Mapping[str, Iterable[str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("kind", "case"), [(k, case) for k in cases for case in cases[k]]
    )


def ours(architecture, reference):
    """The same model in npgpt."""
    config = architecture.CONFIG.from_dict(reference.config.to_dict())
    return architecture.MODEL(config, architecture.reference_params(reference))


def both(
    kind: str, options: Any, *rows: Any, dtype: str = "float64", context: Any = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What npgpt computes and what transformers does, by name, for one random model and input."""
    architecture, options = ARCHITECTURES[kind], {**SIZES[kind], **options}
    given = architecture.random_input(options, *rows, np.random.default_rng(5))
    with (context or architecture.in_float64)():
        reference = architecture.reference_model(options, 5, dtype)
        want = reference_values(architecture, reference, given)
    got = architecture.computed(ours(architecture, reference), given)
    return counted(architecture, given, got), counted(architecture, given, want)


@each_case(CASES)
def test_float64(kind, case) -> None:
    """transformers' own code, but with float64 where it would go over to float32."""
    check_close(*both(kind, *CASES[kind][case]), FLOAT64[kind])


@each_case(IN_FLOAT32)
def test_float32(kind, case) -> None:
    got, want = both(kind, *CASES[kind][case], dtype="float32", context=nullcontext)
    check_close(got, want, FLOAT32[kind], np.float32)
    if "logits" in want:
        assert relative_error(got["logits"], want["logits"]) < FLOAT32_LOGITS[kind]


@pytest.mark.parametrize(
    "case", [case for case, rows in CASES["llama"].items() if rows[2] == "right"]
)
def test_llama_of_transformers_as_it_is(case) -> None:
    """RMSNorm, softmax and angles in float32, the rest in float64.

    Not with padding on the left: the mask's 1e308 is infinite in float32, and the padding's NaN
    gets into every gradient.
    """
    check_close(*both("llama", *CASES["llama"][case], context=nullcontext), 2e-6)


def test_reorder_and_upcast_is_the_same_mathematics() -> None:
    """In float32, which is all that transformers computes this path in."""
    got, want = both("gpt2", {"reorder_and_upcast_attn": True}, [7, 7], "right", dtype="float32")
    check_close(got, want, FLOAT32["gpt2"], np.float32)
    assert relative_error(got["logits"], want["logits"]) < FLOAT32_LOGITS["gpt2"]


@pytest.mark.parametrize(
    ("kind", "options", "others", "difference"),
    [
        ("bert", {}, {"hidden_act": "gelu_new"}, 1e-5),  # the GELUs differ by 5e-4 at most
        ("gpt2", {"activation_function": "gelu"}, {"activation_function": "gelu_new"}, 1e-5),
        ("llama", {"rope_theta": 500.0}, {}, 1e-3),
        ("llama", {"rope_scaling": LLAMA3}, {}, 1e-3),
        ("transformer", BART, {**BART, "activation_function": "gelu_new"}, 1e-5),
    ],
)
def test_one_small_error_would_be_seen(kind, options, others, difference) -> None:
    rows = ([7], [5]) if kind == "transformer" else ([7, 7], "right")
    got, _ = both(kind, options, *rows)
    _, want = both(kind, others, *rows)
    assert relative_error(got["logits"], want["logits"]) > difference


@pytest.mark.parametrize("lengths", [[5], [5, 2, 4]], ids=["alone", "left"])
@pytest.mark.parametrize(
    ("kind", "options", "tables", "different"),
    [
        ("gpt2", {"tie_word_embeddings": False}, ["lm_head"], 5),
        ("llama", {"rope_scaling": LLAMA3}, ["lm_head", "model.embed_tokens"], 3),
    ],
)
def test_greedy_text_with_a_cache(kind, options, tables, different, lengths) -> None:
    import torch

    architecture, options = ARCHITECTURES[kind], {**SIZES[kind], **options}
    reference = architecture.reference_model(options, 5)
    for table in tables:  # no row many times larger, which would often win
        reference.get_submodule(table).weight.data.normal_()
    model = ours(architecture, reference)
    given = architecture.random_input(options, lengths, "left", np.random.default_rng(6))
    want = reference.float().generate(
        torch.tensor(given["ids"]),
        attention_mask=torch.tensor(given["attention_mask"]),
        max_new_tokens=11,
        do_sample=False,
        use_cache=True,
        pad_token_id=0,
    )[:, 5:]
    got = model.generate(given["ids"], 11, attention_mask=given["attention_mask"])
    rows = np.stack(list(got), axis=1).tolist()
    assert rows == want.tolist()
    assert len({*rows[0]}) > different


def test_gpt2_small_with_random_weights() -> None:
    """124,439,808 parameters made by transformers, float32, half a context."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    reference = GPT2LMHeadModel(GPT2Config(attn_implementation="eager")).eval()
    model = ours(gpt2, reference)
    assert model.num_params() == 124_439_808
    ids = np.random.default_rng(0).integers(0, 50257, 512)
    with torch.no_grad():
        want = reference(torch.tensor(ids)[None]).logits[0].numpy()
    got = model(ids)
    assert relative_error(got, want) < 1e-5
    rows, first, second = np.arange(512), got.argmax(axis=-1), want.argmax(axis=-1)
    near_ties = want[rows, second] - want[rows, first]  # 0 where both agree
    assert near_ties.max() < 1e-5 * np.abs(want).max()
    assert (first == second).mean() > 0.99


def test_bert_base_with_random_weights() -> None:
    """109,482,240 parameters made by transformers, float32, a text of 64 tokens."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    reference = BertModel(BertConfig(attn_implementation="eager")).eval()
    model = ours(bert, reference)
    assert model.num_params() == 109_482_240
    ids = np.random.default_rng(0).integers(0, 30522, 64)
    with torch.no_grad():
        want = reference(torch.tensor(ids)[None])
    out = model.forward(ids)
    assert relative_error(out.hidden, want.last_hidden_state[0].numpy()) < 1e-5
    assert relative_error(out.pooled, want.pooler_output[0].numpy()) < 1e-5


def test_loss_and_grads_shift_the_targets_as_transformers_does() -> None:
    import torch

    reference = transformer.reference_model(BART, 3)
    model = ours(transformer, reference)
    given = transformer.random_input(BART, [6, 3], [5, 4], np.random.default_rng(3))
    loss, grads = model.loss_and_grads(given["ids"], given["targets"], given["mask"])
    want = reference(
        input_ids=torch.tensor(given["ids"]),
        attention_mask=torch.tensor(given["mask"]),
        labels=torch.tensor(given["targets"]),
    ).loss
    want.backward()
    assert float(loss) == pytest.approx(want.item(), rel=1e-13)
    got = grads["shared.weight"]
    assert relative_error(got, reference.model.shared.weight.grad.numpy()) < 1e-12


@pytest.mark.parametrize("must", MUST)
@pytest.mark.parametrize("search", SEARCHES)
def test_what_a_search_writes(search, must) -> None:
    """Four random models, three sources each; ends of text are made likely."""
    seen = set()
    for seed in range(4):
        options = {**SIZES["transformer"], "model_type": ["bart", "marian"][seed % 2]}
        reference = transformer.reference_model(options, seed)
        reference.final_logits_bias[0, 2] += seed
        model = ours(transformer, reference)
        forced = {"forced_eos_token_id": None, **MUST[must]}
        model.generation = replace(model.generation, **forced)
        given = transformer.random_input(options, [7, 4, 9], [1, 1, 1], np.random.default_rng(seed))
        settings = {"max_new_tokens": 12, **SEARCHES[search]}
        want = transformer.reference_text(reference, given, **settings, **MUST[must])
        got = model.generate(given["ids"], attention_mask=given["mask"], **settings)
        assert got == want
        seen |= {tuple(row) for row in got}
    assert len(seen) > 1 or search == "one token"
