"""AdamW against a plain formula and against torch; clipping; the schedule."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from npgpt.models.gpt2.config import GPT2Config, init_params
from npgpt.models.gpt2.model import GPT2
from npgpt.train.optim import (
    OPTIMIZERS,
    adamw_step,
    clip_gradients,
    decays,
    inverse_sqrt_learning_rate,
    learning_rate,
    new_adamw_state,
    new_muon_state,
)
from npgpt.train.steps import Recipe, training_step

HYPER = {"weight_decay": 0.3, "beta1": 0.8, "beta2": 0.95, "eps": 1e-8}


def naive_adamw(p, grads, lr, decay):
    """The formula for one number, with moments as explicit sums over all gradients so far."""
    b1, b2, eps = HYPER["beta1"], HYPER["beta2"], HYPER["eps"]
    for t in range(1, len(grads) + 1):
        m = sum((1 - b1) * b1 ** (t - i) * g for i, g in enumerate(grads[:t], 1)) / (1 - b1**t)
        v = sum((1 - b2) * b2 ** (t - i) * g**2 for i, g in enumerate(grads[:t], 1)) / (1 - b2**t)
        p = p - lr * decay * p - lr * m / (math.sqrt(v) + eps)
    return p


def test_three_steps_by_the_formula(rng, monkeypatch):
    monkeypatch.setattr("npgpt.ops.chunks.SIZE", 4)  # arrays of 6 take two pieces, one cut short
    params = {"w": rng.standard_normal((2, 3)), "b": rng.standard_normal(6)}
    start = {name: p.copy() for name, p in params.items()}
    grads = [{name: rng.standard_normal(p.shape) for name, p in params.items()} for _ in range(3)]
    state = new_adamw_state(params)
    for step, grad in enumerate(grads, 1):
        adamw_step(params, grad, state, step=step, lr=0.1, **HYPER)
    for name, decay in (("w", 0.3), ("b", 0.0)):
        for at in np.ndindex(params[name].shape):
            wanted = naive_adamw(start[name][at], [g[name][at] for g in grads], 0.1, decay)
            assert params[name][at] == pytest.approx(wanted, rel=1e-12, abs=1e-14)


def test_first_step_is_the_rate_whatever_the_gradient():
    params = {"b": np.array([1.0, 1.0, 1.0])}
    grads = {"b": np.array([1e-3, 5.0, -200.0])}
    adamw_step(params, grads, new_adamw_state(params), step=1, lr=0.1)
    np.testing.assert_allclose(params["b"], [0.9, 0.9, 1.1], rtol=1e-5)


def test_decay_on_matrices_and_embeddings_only(rng):
    config = GPT2Config(vocab_size=7, n_positions=5, n_embd=4, n_layer=1, n_head=2)
    params = init_params(config, rng)
    kept = {name for name, param in params.items() if not decays(param)}
    assert kept == {name for name in params if "ln_" in name or name.endswith(".bias")}
    assert decays(params["wte.weight"])
    assert decays(params["wpe.weight"])
    before = {name: param.copy() for name, param in params.items()}
    grads = {name: np.zeros_like(param) for name, param in params.items()}
    adamw_step(params, grads, new_adamw_state(params), step=1, lr=0.5, weight_decay=0.1)
    for name, param in params.items():
        expected = before[name] if name in kept else before[name] * np.float32(0.95)
        np.testing.assert_array_equal(param, expected)


def test_in_place_in_the_parameters_dtype_without_a_second_model():
    params = {"w": np.ones((2000, 1000), np.float32)}
    grads = {"w": np.ones((2000, 1000), np.float32)}
    state, arrays = new_adamw_state(params), dict(params)
    tracemalloc.start()
    clip_gradients(grads, 1.0)
    adamw_step(params, grads, state, step=1, lr=1e-3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < params["w"].nbytes / 8
    assert params["w"] is arrays["w"]
    for array in (params["w"], state.first["w"], state.second["w"]):
        assert array.dtype == np.float32


def test_a_parameter_in_fortran_order_is_refused():
    params = {"w": np.ones((2, 3), order="F")}
    with pytest.raises(ValueError, match="'w' does not lie in C order"):
        adamw_step(params, params, new_adamw_state(params), step=1, lr=0.1)


def test_a_gradient_in_fortran_order_is_right_too(rng):
    grad, results = rng.standard_normal((3, 4)), []
    for order in ("C", "F"):
        params = {"w": np.ones((3, 4))}
        adamw_step(params, {"w": grad.copy(order)}, new_adamw_state(params), step=1, lr=0.1)
        results.append(params["w"])
    np.testing.assert_array_equal(results[0], results[1])


def test_clipping_scales_all_gradients_alike():
    grads = {"a": np.array([3.0, 0.0]), "b": np.array([[4.0]])}
    assert clip_gradients(grads, 0) == 5.0
    assert clip_gradients(grads, 6.0) == 5.0
    np.testing.assert_array_equal(grads["a"], [3.0, 0.0])
    assert clip_gradients(grads, 1.0) == 5.0
    np.testing.assert_allclose(grads["a"], [0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose(grads["b"], [[0.8]], rtol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_clipping_reports_gradients_that_are_not_finite_and_leaves_them(bad):
    grads = {"a": np.array([3.0, bad]), "b": np.array([4.0])}
    assert not math.isfinite(clip_gradients(grads, 1.0))
    np.testing.assert_array_equal(grads["b"], [4.0])


def test_schedule():
    def rate(step, floor=0.1, warmup=4):
        return learning_rate(step, peak=1.0, floor=floor, warmup=warmup, steps=24)

    assert [rate(step) for step in range(5)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rate(14) == pytest.approx(0.55)  # half way down
    assert rate(9) == pytest.approx(0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2)
    assert rate(24) == rate(1000) == pytest.approx(0.1)
    assert rate(0, warmup=0) == 1.0
    assert rate(0, warmup=100) == pytest.approx(1 / 101)


def test_the_papers_schedule_rises_in_a_line_and_falls_with_the_root() -> None:
    """d 512 and 4000 steps of warm-up: 1.75e-7 at the first step, 7e-4 at the peak."""

    def at(step: int) -> float:
        return inverse_sqrt_learning_rate(step, d_model=512, warmup=4000)

    assert at(1) == pytest.approx(1.7469e-7, rel=1e-4)
    assert at(4000) == pytest.approx((512 * 4000) ** -0.5, rel=1e-12)
    assert at(2000) == pytest.approx(at(4000) / 2, rel=1e-12)
    assert at(16_000) == pytest.approx(at(4000) / 2, rel=1e-12)
    assert max(range(1, 20_000), key=at) == 4000


def thirds(matrix: Any) -> list[Any]:
    """The three matrices in `c_attn` [d, 3 d]; any other matrix by itself, as no other is so."""
    d, width = matrix.shape
    return [*matrix.split(d, dim=1)] if width == 3 * d else [matrix]


def ten_steps_in_torch(model: GPT2, ids: np.ndarray, settings: Recipe) -> tuple[list[float], Any]:
    import torch
    from transformers import GPT2Config as HFConfig
    from transformers import GPT2LMHeadModel

    config = HFConfig(**model.config.to_dict(), attn_implementation="eager")
    dtype = torch.from_numpy(model.params["wte.weight"]).dtype
    reference = GPT2LMHeadModel(config).to(dtype).train()
    tensors = {f"transformer.{n}": torch.from_numpy(p.copy()) for n, p in model.params.items()}
    loaded = reference.load_state_dict(tensors, strict=False)
    assert loaded.missing_keys == ["lm_head.weight"]
    assert loaded.unexpected_keys == []
    hidden = {p for n, p in reference.named_parameters() if ".h." in n and p.ndim == 2}
    hidden = hidden if settings.optimizer == "muon" else set()
    rest = [p for p in reference.parameters() if p not in hidden]
    optimizers: list[Any] = [
        torch.optim.AdamW(
            [
                {"params": [p for p in rest if p.ndim >= 2]},
                {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0},
            ],
            lr=settings.lr,
            betas=(settings.beta1, settings.beta2),
            weight_decay=settings.weight_decay,
        )
    ]
    # The columns of queries, of keys and of values: views, which Muon updates in place.
    pieces = [(p, i, piece) for p in hidden for i, piece in enumerate(thirds(p.detach()))]
    if pieces:
        optimizers.append(
            torch.optim.Muon(
                [piece for *_, piece in pieces],
                weight_decay=settings.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            )
        )
    batch, losses = torch.from_numpy(ids), []
    for step in range(settings.steps):
        for group in (group for each in optimizers for group in each.param_groups):
            group["lr"] = learning_rate(
                step,
                peak=settings.lr,
                floor=settings.min_lr,
                warmup=settings.warmup,
                steps=settings.steps,
            )
        logits = reference(batch[:, :-1]).logits.flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, batch[:, 1:].flatten())
        reference.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(reference.parameters(), settings.clip)
        for param, i, piece in pieces:
            piece.grad = thirds(param.grad)[i]
        for each in optimizers:
            each.step()
        losses.append(loss.item())
    return losses, reference.transformer.state_dict()


@pytest.mark.hf
@pytest.mark.parametrize(("dtype", "loss_rtol"), [(np.float64, 1e-10), (np.float32, 1e-5)])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_ten_steps_on_one_batch_equal_torch(hf, rng, monkeypatch, optimizer, dtype, loss_rtol):
    import torch

    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)  # in which its Muon iterates
    config = GPT2Config.from_dict(
        {
            "vocab_size": 61,
            "n_positions": 24,
            "n_embd": 32,
            "n_layer": 3,
            "n_head": 4,
            **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), 0.0),
            **dict.fromkeys(("bos_token_id", "eos_token_id")),
        }
    )
    model = GPT2(config, init_params(config, rng, dtype))
    ids = rng.integers(61, size=(5, 24))
    settings = Recipe(
        steps=10,
        batch_size=5,
        grad_accum=1,
        context=23,
        lr=3e-3,
        min_lr=3e-4,
        warmup=3,
        weight_decay=0.1,
        beta1=0.9,
        beta2=0.95,
        clip=0.7,
        dropout=0.0,
        seed=0,
        optimizer=optimizer,
    )
    losses, reference = ten_steps_in_torch(model, ids, settings)
    new_state = new_muon_state if optimizer == "muon" else new_adamw_state
    state, reports = new_state(model.params), []
    for step in range(1, 11):
        reports.append(training_step(model, state, [(ids[:, :-1], ids[:, 1:])], settings, step))
    np.testing.assert_allclose([r.loss for r in reports], losses, rtol=loss_rtol)
    assert losses[-1] < losses[0] - 0.3
    assert any(r.norm > settings.clip for r in reports)
    if dtype == np.float64:
        for name, param in model.params.items():
            np.testing.assert_allclose(
                param, reference[name].numpy(), rtol=0, atol=1e-9, err_msg=name
            )
