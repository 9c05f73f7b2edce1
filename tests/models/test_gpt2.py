"""GPT-2: the gradients of every parameter, and which parameters there are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from npgpt.models.gpt2.config import GPT2Config, init_params, param_shapes
from npgpt.models.gpt2.model import GPT2
from npgpt.ops.cross_entropy import cross_entropy_forward
from tests.builders.gpt2 import random_gpt2, tiny_gpt2_config
from tests.gradcheck import check_direction

B, T, V = 3, 7, 19


def random_batch(rng):
    ids, targets = rng.integers(0, V, (2, B, T))
    targets[0, 2:4] = -100
    return ids, targets


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tie_word_embeddings": False, "activation_function": "gelu", "n_inner": 10},
        {"scale_attn_by_inverse_layer_idx": True, "activation_function": "silu"},
    ],
)
def test_every_gradient_predicts_the_change_of_the_loss(rng, options) -> None:
    model = random_gpt2(rng, **options)
    ids, targets = random_batch(rng)
    _, grads = model.loss_and_grads(ids, targets)

    def loss_fn(params):
        return float(cross_entropy_forward(GPT2(model.config, params)(ids), targets)[0])

    check_direction(loss_fn, model.params, grads, rng)


def test_gradients_through_dropout(rng) -> None:
    """The same generator draws the same masks, so the loss is a smooth function again."""
    model = random_gpt2(rng, embd_pdrop=0.2, attn_pdrop=0.3, resid_pdrop=0.1)
    ids, targets = random_batch(rng)
    _, grads = model.loss_and_grads(ids, targets, rng=np.random.default_rng(3))

    def loss_fn(params):
        logits, _ = GPT2(model.config, params).forward(ids, rng=np.random.default_rng(3))
        return float(cross_entropy_forward(logits, targets)[0])

    check_direction(loss_fn, model.params, grads, rng)


@pytest.mark.parametrize("name", ["embd_pdrop", "attn_pdrop", "resid_pdrop"])
def test_each_dropout_draws_only_in_training_and_only_from_its_generator(rng, name) -> None:
    pdrop: dict[str, Any] = {"embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0, name: 0.5}
    model, ids = random_gpt2(rng, **pdrop), rng.integers(0, V, T)
    first, again, other = (
        model.forward(ids, rng=np.random.default_rng(n)).logits for n in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3
    np.testing.assert_array_equal(model.forward(ids, flash=True).logits, model(ids))


def test_a_model_of_2_layers_and_width_8(rng) -> None:
    """28 tensors, 1,952 parameters, a loss near ln 16 at the start, T losses in one pass."""
    config = tiny_gpt2_config(n_layer=2, n_head=2, n_embd=8, vocab_size=16, n_positions=8)
    model = GPT2(config, init_params(config, rng, np.float64))
    ids, targets = rng.integers(0, 16, (2, 8))
    loss, grads = model.loss_and_grads(ids, targets)
    assert len(model.params) == 28
    assert model.num_params() == 1952
    assert abs(loss - math.log(16)) < 0.05
    losses = [model.loss_and_grads(ids[: t + 1], [-100] * t + [targets[t]])[0] for t in range(8)]
    assert loss == pytest.approx(np.mean(losses), rel=1e-12)
    assert list(grads) == list(model.params)
    assert all(grads[name].any() for name in grads)


def test_the_parameters_of_gpt2_small() -> None:
    """Article 11.2, counted from shapes alone: views of one zero, not 500 MB."""
    shapes = param_shapes(GPT2Config())
    model = GPT2(GPT2Config(), {n: np.broadcast_to(np.float32(0), s) for n, s in shapes.items()})
    size = {name: math.prod(shape) for name, shape in shapes.items()}

    def total(prefix):
        return sum(n for name, n in size.items() if name.startswith(prefix))

    assert size["wte.weight"] == 38_597_376
    assert size["wpe.weight"] == 786_432
    assert total("h.0.attn.") == 2_362_368
    assert total("h.0.mlp.") == 4_722_432
    assert total("h.0.ln_") == 3_072
    assert total("h.0.") == total("h.11.") == 7_087_872
    assert total("h.") == 85_054_464
    assert total("ln_f.") == 1_536
    assert model.num_params() == 124_439_808
    assert model.num_params(embeddings=False) == 123_653_376


def test_fresh_parameters_have_gpt2s_scales(rng) -> None:
    config = tiny_gpt2_config(n_embd=60, n_layer=8, n_positions=100, initializer_range=0.03)
    params = init_params(config, rng)
    assert {param.dtype for param in params.values()} == {np.dtype(np.float32)}
    assert params["wpe.weight"].std() == pytest.approx(0.03, rel=0.05)
    assert params["h.3.attn.c_attn.weight"].std() == pytest.approx(0.03, rel=0.05)
    assert params["h.3.mlp.c_proj.weight"].std() == pytest.approx(0.03 / 4, rel=0.05)  # √(2 L) = 4
    assert params["h.3.attn.c_proj.weight"].std() == pytest.approx(0.03 / 4, rel=0.05)
    assert not params["h.3.attn.c_attn.bias"].any()
    assert (params["ln_f.weight"] == 1).all()


def test_a_tied_wte_gets_both_contributions(rng) -> None:
    tied = random_gpt2(rng)
    ids, targets = random_batch(rng)
    copied = {**tied.params, "lm_head.weight": tied.params["wte.weight"]}
    untied = GPT2(tiny_gpt2_config(tie_word_embeddings=False), copied)
    loss, grads = tied.loss_and_grads(ids, targets)
    untied_loss, untied_grads = untied.loss_and_grads(ids, targets)
    assert loss == untied_loss
    both = untied_grads["wte.weight"] + untied_grads["lm_head.weight"]
    np.testing.assert_allclose(grads["wte.weight"], both, rtol=1e-12, atol=1e-15)
    unused = np.setdiff1d(np.arange(V), ids)
    assert unused.size
    assert not untied_grads["wte.weight"][unused].any()
    assert untied_grads["lm_head.weight"].all()


def test_all_targets_ignored_gives_zero_loss_and_zero_gradients(rng) -> None:
    loss, grads = random_gpt2(rng).loss_and_grads([1, 2, 3], [-100] * 3)
    assert loss == 0
    assert not any(grad.any() for grad in grads.values())


def test_saved_parameters_load_again(rng, tmp_path) -> None:
    from npgpt.models.gpt2.checkpoint import load_checkpoint

    model = random_gpt2(rng, np.float32, n_inner=10, tie_word_embeddings=False)
    model.save_pretrained(tmp_path)
    config, params = load_checkpoint(tmp_path)
    assert config.to_dict().items() >= model.config.to_dict().items()
    assert list(params) == list(model.params)
    for name, param in params.items():
        np.testing.assert_array_equal(param, model.params[name])
