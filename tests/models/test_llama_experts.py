"""Mixtral and Qwen3-MoE: which blocks have experts, the load-balancing loss, their config.json."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import npgpt
from npgpt.layers.mixture import MixtureSaved
from npgpt.models.llama.config import LlamaConfig, param_shapes
from npgpt.ops.cross_entropy import cross_entropy_forward
from npgpt.ops.load_balance import load_balance_forward
from tests.builders.llama import SIZES, random_llama
from tests.goldens import llama
from tests.gradcheck import check_close, check_direction

# As the file on the hub has it.
QWEN3_30B_A3B = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "decoder_sparse_step": 1,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 6144,
    "max_position_embeddings": 40960,
    "max_window_layers": 48,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "output_router_logits": False,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.001,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
EXPERTS: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 5},
    "qwen3_moe": {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 7},
}
BALANCED = {"output_router_logits": True, "router_aux_loss_coef": 0.3}


def with_experts(rng, family="qwen3_moe", **options):
    return random_llama(rng, model_type=family, **{**EXPERTS[family], **options})


def test_the_file_on_the_hub_is_read_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = LlamaConfig.from_dict(QWEN3_30B_A3B)
    sizes = {name: np.prod(shape, dtype=int) for name, shape in param_shapes(config).items()}
    assert sum(sizes.values()) == 30_532_122_624
    assert (config.sparse, config.windows) == (48 * [True], 48 * [None])
    assert LlamaConfig.from_dict(config.to_dict()) == LlamaConfig.from_dict(config.to_dict())
    assert config.to_dict()["num_experts"] == config.to_dict()["num_local_experts"] == 128
    assert config.to_dict()["max_window_layers"] == 48


def test_mixtral_without_a_word_is_the_one_of_46_billion() -> None:
    config = LlamaConfig.from_dict({"model_type": "mixtral"})
    total = sum(np.prod(shape, dtype=int) for shape in param_shapes(config).values())
    assert total == 46_702_792_704


@pytest.mark.parametrize(
    ("options", "sparse"),
    [
        ({}, [True, True, True, True]),
        ({"decoder_sparse_step": 2}, [False, True, False, True]),
        ({"mlp_only_layers": [0, 3]}, [False, True, True, False]),
        ({"decoder_sparse_step": 3, "mlp_only_layers": [0]}, [False, False, True, False]),
        ({"num_experts": 0}, [False] * 4),
    ],
    ids=str,
)
def test_which_blocks_have_experts(rng, options, sparse) -> None:
    model = with_experts(rng, num_hidden_layers=4, **options)
    assert model.config.sparse == sparse
    found = [isinstance(b.mlp, MixtureSaved) for b in model.forward([1, 2]).saved.blocks]
    assert found == sparse
    shapes = [
        model.params.get(f"layers.{n}.mlp.gate_proj.weight", np.empty(0)).shape for n in range(4)
    ]
    assert shapes == [(0,) if has_experts else (18, 10) for has_experts in sparse]


@pytest.mark.parametrize("family", EXPERTS)
@pytest.mark.parametrize("flash", [True, False])
def test_the_load_balancing_loss_is_part_of_the_loss_where_it_is_asked_for(
    rng, family, flash
) -> None:
    """Of all routers together, without padding; each gradient is the derivative of the sum."""
    model = with_experts(rng, family, **BALANCED)
    ids, targets = rng.integers(0, 19, (2, 3, 9))
    mask = np.ones((3, 9), int)
    mask[1, 5:], targets[1, 5:] = 0, -100
    loss, grads = model.loss_and_grads(ids, targets, mask, flash=flash)

    def loss_fn(params):
        out = npgpt.Llama(model.config, params).forward(ids, mask)
        routers = [block.mlp.router for block in out.saved.blocks]
        probs, kept = (np.stack([getattr(r, a) for r in routers]) for a in ("probs", "kept"))
        balance, _ = load_balance_forward(probs, kept, counted=mask == 1)
        return float(cross_entropy_forward(out.logits, targets)[0] + 0.3 * balance)

    assert loss == pytest.approx(loss_fn(model.params), rel=1e-12)
    check_direction(loss_fn, model.params, grads, rng)


@pytest.mark.hf
@pytest.mark.parametrize("family", EXPERTS)
@pytest.mark.parametrize("padded", [False, True])
def test_the_loss_of_transformers_with_its_load_balance(hf, rng, family, padded) -> None:
    """Its own loss and gradients, which shift the labels themselves."""
    import torch

    options = {**llama.SIZES, "model_type": family, **EXPERTS[family], **BALANCED}
    ids, mask = rng.integers(0, 19, (2, 9)), np.ones((2, 9), int)
    if padded:
        mask[1, 6:] = 0
    labels = np.where(mask == 1, ids, -100)
    with llama.in_float64():
        reference = llama.reference_model(options, 5)
        given = {"input_ids": ids, "attention_mask": mask, "labels": labels}
        output = reference(**{name: torch.from_numpy(array) for name, array in given.items()})
        output.loss.backward()
    model = llama.MODEL(
        LlamaConfig.from_dict(reference.config.to_dict()), llama.reference_params(reference)
    )
    targets = np.concatenate([labels[:, 1:], np.full((2, 1), -100)], axis=1)
    loss, grads = model.loss_and_grads(ids, targets, mask)
    assert loss == pytest.approx(output.loss.item(), rel=1e-12)
    assert loss - 0.3 * output.aux_loss.item() == pytest.approx(
        float(cross_entropy_forward(model(ids, mask), targets)[0]), rel=1e-12
    )
    check_close(grads, llama.reference_params(reference, gradients=True), 1e-11)


def test_it_is_not_part_of_it_otherwise(rng) -> None:
    model = with_experts(rng, router_aux_loss_coef=5.0)
    ids, targets = rng.integers(0, 19, (2, 9))
    loss, _ = model.loss_and_grads(ids, targets)
    assert loss == pytest.approx(float(cross_entropy_forward(model(ids), targets)[0]), rel=1e-12)


@pytest.mark.parametrize("family", EXPERTS)
def test_float32_stays_float32(rng, family) -> None:
    model = with_experts(rng, family, **BALANCED)
    model.params = {name: param.astype(np.float32) for name, param in model.params.items()}
    ids, targets = rng.integers(0, 19, (2, 9))
    loss, grads = model.loss_and_grads(ids, targets)
    assert {loss.dtype, *(grad.dtype for grad in grads.values())} == {np.dtype(np.float32)}
    assert {name: grad.shape for name, grad in grads.items()} == param_shapes(model.config)


@pytest.mark.parametrize(
    ("family", "settings", "sentence"),
    [
        (
            "mixtral",
            {"num_experts_per_tok": 6},
            "num_experts_per_tok is 6, but num_local_experts 5",
        ),
        ("mixtral", {"num_local_experts": 0}, "num_experts_per_tok is 2, but num_local_experts 0"),
        ("mixtral", {"router_jitter_noise": 0.1}, "router_jitter_noise is 0.1, but npgpt trains"),
        ("qwen3_moe", {"num_experts": 2.5}, "num_local_experts is 2.5, but must be an integer"),
        ("qwen3_moe", {"mlp_only_layers": ["0"]}, "mlp_only_layers is .* each value is an integer"),
        ("qwen3_moe", {"decoder_sparse_step": 0}, "decoder_sparse_step is 0, but must be a pos"),
        ("qwen3_moe", {"partial_rotary_factor": 0.5}, "npgpt turns whole heads"),
    ],
)
def test_refused_in_one_sentence(family, settings, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        LlamaConfig.from_dict({**SIZES, "model_type": family, **EXPERTS[family], **settings})


def test_experts_of_a_model_that_has_none_are_named_or_kept() -> None:
    with pytest.warns(UserWarning, match="npgpt does not know num_experts, which may change"):
        LlamaConfig.from_dict({**SIZES, "num_experts": 4})
    with pytest.raises(ValueError, match="num_local_experts is set, but a qwen3 has none"):
        LlamaConfig(model_type="qwen3", num_local_experts=4)


def test_another_number_of_experts_than_the_file_says(rng, tmp_path) -> None:
    model = with_experts(rng)
    model.params = {name: param.astype(np.float32) for name, param in model.params.items()}
    model.save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    text = config.read_text("utf-8").replace('_experts": 6', '_experts": 5')
    config.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"gate.weight' has shape \[6, 18\], but .* \[5, 18\]"):
        npgpt.from_pretrained(tmp_path)


def test_two_names_of_one_number() -> None:
    with pytest.warns(UserWarning, match="num_experts is 4 and num_local_experts 5, which mean"):
        config = LlamaConfig.from_dict(
            {**SIZES, "model_type": "mixtral", "num_local_experts": 5, "num_experts": 4}
        )
    assert config.num_local_experts == 4
