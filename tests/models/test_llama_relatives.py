"""Llama's relatives against transformers: outputs, every gradient, the cache, what is saved."""

from __future__ import annotations

import json
import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt.models.llama.config import LlamaConfig, param_shapes
from npgpt.models.llama.families import FAMILIES
from npgpt.ops.cross_entropy import cross_entropy_forward
from tests.builders.llama import SIZES, random_llama
from tests.goldens import live, llama
from tests.gradcheck import check_close, check_direction, relative_error
from tests.models.test_llama import read_in_steps

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.5],
    "long_factor": [2.0, 5.0],
    "factor": 3.0,
    "original_max_position_embeddings": 6,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True, "rope_scaling": YARN},
    "mistral": {"sliding_window": 3},
    "mixtral": {"num_local_experts": 5, "sliding_window": 4},
    "qwen2": {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
    "qwen3": {"attention_bias": True, "rms_norm_eps": 0.1, "rope_scaling": LONGROPE},
    "qwen3_moe": {
        "num_local_experts": 6,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 7,
        "decoder_sparse_step": 2,
    },
}
B, T = 3, 9


def relative(rng, family, **options):
    return random_llama(rng, model_type=family, **{**OPTIONS[family], **options})


def random_options(family: str, rng: np.random.Generator) -> dict[str, Any]:
    """Settings of a model of this family, all that make a difference to results at random."""
    H_kv, d_h, E = int(rng.choice([1, 2, 3])), int(rng.choice([4, 6, 8])), int(rng.integers(2, 7))
    k = int(rng.integers(1, E + 1))  # of which 1, made to sum to 1, gives a router no gradient
    rotary: list[Any] = [
        None,
        {"rope_type": "linear", "factor": 2.5},
        {"rope_type": "dynamic", "factor": 3.0},
        {**llama.LLAMA3},
        {**YARN, "beta_fast": 4.0, "beta_slow": 0.5, "truncate": bool(rng.integers(2))},
        {**YARN, "mscale": 0.7, "mscale_all_dim": 1.3},
        {**LONGROPE, **{name: rng.uniform(1, 4, d_h // 2).tolist() for name in LISTS}},
    ]
    options: dict[str, Any] = {
        **llama.SIZES,
        "model_type": family,
        "num_attention_heads": H_kv * int(rng.choice([1, 2])),
        "num_key_value_heads": H_kv,
        "head_dim": d_h,
        "num_hidden_layers": int(rng.choice([1, 3])),
        "tie_word_embeddings": bool(rng.integers(2)),
        "hidden_act": str(rng.choice(["silu", "gelu"])),
        "rms_norm_eps": float(rng.choice([1e-6, 1e-2])),
        "rope_theta": float(rng.choice([10.0, 500.0])),
        "rope_scaling": rotary[rng.integers(len(rotary))],
        "attention_bias": bool(rng.integers(2)),
        "mlp_bias": bool(rng.integers(2)),
        "sliding_window": int(rng.choice([1, 3, 5, 40])),
        "use_sliding_window": bool(rng.integers(4)),
        "max_window_layers": int(rng.integers(3)),
        "num_local_experts": E,
        "num_experts_per_tok": max(k, 2) if family == "mixtral" else k,
        "norm_topk_prob": k > 1 and bool(rng.integers(2)),
        "moe_intermediate_size": int(rng.choice([3, 7])),
        "decoder_sparse_step": int(rng.choice([1, 1, 2])),
        "mlp_only_layers": [0] if rng.integers(4) == 0 else [],
    }
    return {name: options[name] for name in options if name not in FAMILIES[family].unread}


LISTS = ("short_factor", "long_factor")
EAGER = ("attn_implementation", "experts_implementation")


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_and_gradients_as_transformers(family, seed) -> None:
    """Texts longer than the window, padded on either side; float64 all the way."""
    rng = np.random.default_rng(seed)
    options = random_options(family, rng)
    lengths, side = ([14, 11, 3], "left") if seed % 3 == 0 else ([12, 5][: 1 + seed % 2], "right")
    got, want = live(llama, options, lengths, side, llama.in_float64)
    check_close(got, want, 1e-11)
    if len(lengths) == 1:  # else the mask's 1e308 is infinite in float32
        got, want = live(llama, options, lengths, side, nullcontext)
        assert relative_error(got["logits"], want["logits"]) < 2e-6


@pytest.mark.parametrize("family", FAMILIES)
def test_every_gradient_predicts_the_change_of_the_loss(rng, family) -> None:
    model = relative(rng, family)
    ids, targets = rng.integers(0, 19, (2, B, T))
    loss, grads = model.loss_and_grads(ids, targets)
    plain_loss, plain = model.loss_and_grads(ids, targets, flash=False)
    assert loss == pytest.approx(plain_loss, rel=1e-12)
    check_close(grads, plain, 1e-11)

    def loss_fn(params):
        logits = npgpt.Llama(model.config, params)(ids)
        return float(cross_entropy_forward(logits, targets)[0])

    check_direction(loss_fn, model.params, grads, rng)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("steps", [[9], [4, 1, 3, 1], [1] * 9], ids=str)
def test_cached_is_uncached(rng, family, steps) -> None:
    model = relative(rng, family, **({"rope_scaling": None} if family == "qwen3" else {}))
    ids, attention_mask = rng.integers(0, 19, (B, T)), np.ones((B, T), int)
    attention_mask[1, :3] = 0
    want = model(ids, attention_mask)
    got = read_in_steps(model, ids, attention_mask, steps)
    real = attention_mask == 1
    np.testing.assert_allclose(got[real], want[real], rtol=1e-10)


@pytest.mark.parametrize(
    ("family", "options", "reach"),
    [
        ("mistral", {}, 2),
        ("mistral", {"num_hidden_layers": 1}, 1),
        ("mistral", {"sliding_window": None}, 8),
        ("qwen2", {"max_window_layers": 0}, 2),
        ("qwen2", {}, 8),  # the first block sees all
        ("qwen2", {"layer_types": 2 * ["sliding_attention"]}, 2),
        ("qwen2", {"use_sliding_window": False}, 8),
    ],
)
def test_a_window_ends_what_is_seen(rng, family, options, reach) -> None:
    """With windows of 2, each block looks one token further back."""
    options = {"sliding_window": 2, **options}
    model, ids = relative(rng, family, **options), rng.integers(0, 19, T)
    changes = []
    for place in range(T):
        other = ids.copy()
        other[place] = (ids[place] + 1) % 19
        changes.append(np.abs(model(other)[-1] - model(ids)[-1]).max() > 1e-9)
    assert changes == [T - 1 - place <= reach for place in range(T)]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_family_has_of_its_own(family) -> None:
    names = param_shapes(LlamaConfig.from_dict({**SIZES, "model_type": family}))
    found = {name.removeprefix("layers.1.self_attn.") for name in names if "layers.1." in name}
    biases, norms = (
        {"q_proj.bias", "k_proj.bias", "v_proj.bias"},
        {"q_norm.weight", "k_norm.weight"},
    )
    assert found >= biases if family == "qwen2" else not found & biases
    assert found >= norms if family in ("qwen3", "qwen3_moe") else not found & norms
    assert "o_proj.bias" not in found


@pytest.mark.parametrize(
    ("family", "settings", "sentence"),
    [
        ("llama", {"sliding_window": 3}, "sliding_window is set, but a llama has none"),
        ("mistral", {"attention_bias": True}, "attention_bias is set, but a mistral has none"),
        ("qwen2", {"layer_types": ["full_attention"]}, "full_attention or sliding_attention for"),
        ("qwen3", {"layer_types": ["chunked", "chunked"]}, r"each of 2 blocks, but is \['chunk"),
        ("qwen3", {"layer_types": 2 * ["sliding_attention"]}, "use_sliding_window or sliding_"),
    ],
)
def test_refused_in_one_sentence(family, settings, sentence) -> None:
    sizes: dict[str, Any] = {"num_hidden_layers": 2, "head_dim": 4, "num_key_value_heads": 32}
    with pytest.raises(ValueError, match=sentence):
        LlamaConfig(model_type=family, **sizes, **settings)


def test_what_transformers_does_not_read_is_kept_and_changes_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = LlamaConfig.from_dict({**SIZES, "sliding_window": 3, "layer_types": ["x"]})
    assert config.windows == [None, None]
    assert config.to_dict()["layer_types"] == ["x"]
    assert "use_sliding_window" not in config.to_dict()


@pytest.mark.parametrize("name", ["alpha", "low_freq_factor", "short_factor"])
def test_a_rotary_setting_that_the_type_does_not_read_is_named(name) -> None:
    with pytest.warns(UserWarning, match=f"here: npgpt does not know {name} among the rotary"):
        LlamaConfig.from_dict({**SIZES, "rope_scaling": {**YARN, name: 3}}, "here")


@pytest.mark.parametrize("outside", [None, 64])
def test_the_first_length_stands_inside_outside_or_nowhere(outside) -> None:
    raw = {**SIZES, "rope_scaling": {"type": "yarn", "factor": 4.0}}
    if outside:
        raw["original_max_position_embeddings"] = outside
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = LlamaConfig.from_dict(raw)
    assert config.rotary.scaling["original_max_position_embeddings"] == (outside or 11)
    assert config.rotary.context == 4 * (outside or 11)


def test_longrope_beyond_the_first_length_needs_the_whole_text(rng) -> None:
    model = relative(rng, "qwen3")
    kv = model.new_kv_cache()
    model([1, 2, 3, 4, 5, 6], kv=kv)
    with pytest.raises(ValueError, match=r"'longrope' changes .* beyond 6, .*use_cache=False"):
        model([7], kv=kv)


WIDTHS = {"num_key_value_heads": 6, "head_dim": 4, "moe_intermediate_size": 10}


def without_widths(family: str) -> dict[str, Any]:
    """Settings that leave to the others what `WIDTHS` says."""
    unread = FAMILIES[family].unread
    return {"hidden_size": 24, **{name: None for name in WIDTHS if name not in unread}}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_width_that_follows_from_others_is_written_as_a_number(rng, family) -> None:
    raw = relative(rng, family, **without_widths(family)).config.to_dict()
    assert raw.items() >= {name: WIDTHS[name] for name in WIDTHS if name in raw}.items()
    assert raw.keys() >= {"num_key_value_heads", "head_dim"}


@pytest.mark.hf
@pytest.mark.usefixtures("hf")
@pytest.mark.parametrize("widths", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_reads_what_we_write_and_we_what_it_writes(
    rng, tmp_path, family, widths
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = relative(rng, family, **({} if widths else without_widths(family)))
    model.params = {name: param.astype(np.float32) for name, param in model.params.items()}
    ids = rng.integers(0, 19, T)
    model.save_pretrained(tmp_path / "ours")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["model_type"] == family
    reference, info = AutoModelForCausalLM.from_pretrained(
        tmp_path / "ours", output_loading_info=True, **dict.fromkeys(EAGER, "eager")
    )
    assert not any(info.values())
    with torch.no_grad():
        theirs = reference(torch.tensor(ids)[None]).logits[0].numpy()
    np.testing.assert_allclose(model(ids), theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())
    reference.save_pretrained(tmp_path / "theirs")
    again = npgpt.from_pretrained(tmp_path / "theirs")
    np.testing.assert_array_equal(again(ids), model(ids))
