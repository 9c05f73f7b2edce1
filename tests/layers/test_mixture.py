"""mixture: tokens go to experts and back; by hand, central differences, and transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npgpt.layers.mixture import mixture_backward, mixture_forward, router_backward, router_forward
from npgpt.layers.swiglu import swiglu_forward
from npgpt.ops.load_balance import load_balance_backward, load_balance_forward
from npgpt.ops.router import top_k_forward
from npgpt.ops.softmax import softmax_forward
from tests.gradcheck import check_gradients, relative_error

D, E, F = 4, 5, 3
SETTINGS = [(1, False), (2, True), (3, False), (E, True)]


def inputs(rng: np.random.Generator, *lead: int) -> tuple[np.ndarray, ...]:
    """x, and all matrices, those of the experts stacked."""
    shapes = (*lead, D), (D, E), (E, D, F), (E, D, F), (E, F, D)
    return tuple(rng.standard_normal(shape) for shape in shapes)


def stacked_backward(dy: np.ndarray, saved: Any) -> tuple[np.ndarray, ...]:
    return tuple(map(np.array, mixture_backward(dy, saved)))


def test_by_hand() -> None:
    """Two tokens, three experts that say x, 2 x, 3 x: the gate is wide open, silu(100) = 100."""
    x = np.array([[1.0], [-1.0]])
    opened = np.full((3, 1, 1), 100.0)
    factors = np.array([1.0, 2, 3]).reshape(3, 1, 1) / 100
    W_router = np.log([[1.0, 2.0, 6.0]])  # probabilities (1, 2, 6) / 9, and of -1 (6, 3, 1) / 10
    for renormalise, total, other in [(False, 9, 10), (True, 8, 9)]:
        y, saved = mixture_forward(
            x, W_router, opened, np.ones((3, 1, 1)), factors, k=2, renormalise=renormalise
        )
        assert y[0] == pytest.approx((2 * 2 + 6 * 3) / total)
        # silu(-100) = 0: the second token's gates are shut.
        assert y[1] == pytest.approx(0, abs=1e-12)
        np.testing.assert_allclose(
            saved.weights, [[0, 2 / total, 6 / total], [6 / other, 3 / other, 0]], rtol=1e-14
        )
    assert [expert.tokens.tolist() for expert in saved.experts] == [[1], [0, 1], [0]]


@pytest.mark.parametrize(("k", "renormalise"), SETTINGS)
def test_a_loop_over_tokens(k: int, renormalise: bool, rng: np.random.Generator) -> None:
    x, W_router, *matrices = inputs(rng, 2, 3)
    y, _ = mixture_forward(x, W_router, *matrices, k=k, renormalise=renormalise)
    for at in np.ndindex(2, 3):
        probs, _ = softmax_forward(x[at] @ W_router, axis=-1)
        chosen = np.argsort(probs)[E - k :]
        total = probs[chosen].sum() if renormalise else 1.0
        want = sum(
            probs[e] / total * swiglu_forward(x[at], *(W[e] for W in matrices))[0] for e in chosen
        )
        np.testing.assert_allclose(y[at], want, rtol=1e-12)


@pytest.mark.parametrize("lead", [(6,), (2, 3), ()], ids=str)
@pytest.mark.parametrize(("k", "renormalise"), SETTINGS)
def test_gradients(k: int, renormalise: bool, lead: Any, rng: np.random.Generator) -> None:
    settings = {"k": k, "renormalise": renormalise}
    check_gradients(mixture_forward, stacked_backward, inputs(rng, *lead), rng, **settings)


def test_gradient_with_the_load_balancing_loss(rng: np.random.Generator) -> None:
    """The loss reads the router's probabilities; its gradient joins there."""

    def forward(x: np.ndarray, W: np.ndarray) -> Any:
        weights, saved = router_forward(x, W, k=2, renormalise=True)
        loss, saved_loss = load_balance_forward(saved.probs, saved.kept)
        return np.append(weights, loss), (saved, saved_loss, weights.shape)

    def backward(dy: np.ndarray, saved: Any) -> Any:
        router, saved_loss, shape = saved
        balance = load_balance_backward(dy[-1], saved_loss)
        return router_backward(dy[:-1].reshape(shape), router._replace(balance=balance))

    check_gradients(forward, backward, (*inputs(rng, 2, 3)[:2],), rng)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_expert_without_tokens_gets_zeros(dtype: Any, rng: np.random.Generator) -> None:
    x, W_router, *matrices = (array.astype(dtype) for array in inputs(rng, 7))
    W_router[:, 2] = 0
    W_router[0] = [9, 9, -9, 9, 9]
    x[:, 0] = 5  # all tokens score expert 2 low
    y, saved = mixture_forward(x, W_router, *matrices, k=2, renormalise=True)
    assert len(saved.experts[2].tokens) == 0
    dx, dW_router, *dmatrices = mixture_backward(np.ones_like(y), saved)
    assert {array.dtype for array in (y, dx, dW_router)} == {np.dtype(dtype)}
    for of_all, W in zip(dmatrices, matrices, strict=True):
        assert all(grad.shape == W[0].shape and grad.dtype == dtype for grad in of_all)
        assert [bool(grad.any()) for grad in of_all] == [e != 2 for e in range(E)]


def test_other_experts_see_nothing_of_a_token(rng: np.random.Generator) -> None:
    x, W_router, *matrices = inputs(rng, 6)
    _, kept = top_k_forward(softmax_forward(x @ W_router, axis=-1)[0], k=2)
    y, _ = mixture_forward(x, W_router, *matrices, k=2, renormalise=True)
    for e in range(E):
        changed = [W.copy() for W in matrices]
        changed[2][e] += 1
        other, _ = mixture_forward(x, W_router, *changed, k=2, renormalise=True)
        assert (y != other).any(axis=-1).tolist() == kept[:, e].tolist()


def test_stations_and_what_is_put_in_their_place(rng: np.random.Generator) -> None:
    x, *matrices = inputs(rng, 3)
    seen: dict[str, np.ndarray] = {}

    def without_weights(name: str, array: np.ndarray) -> np.ndarray:
        seen[name] = array
        return 0 * array if name == "weights" else array

    y, saved = mixture_forward(x, *matrices, k=2, renormalise=False, station=without_weights)
    assert not y.any()
    assert [*seen] == ["gate", "weights"]
    np.testing.assert_array_equal(seen["gate"], x @ matrices[0])
    there = {name: array.shape for name, array in seen.items()}
    seen.clear()
    mixture_backward(np.ones_like(y), saved, without_weights)
    assert {name: array.shape for name, array in seen.items()} == there
    assert (seen["weights"] != 0).sum() == 3 * 2  # zero weights, but chosen: they have a gradient


def test_an_observer_sends_a_token_to_another_expert(rng: np.random.Generator) -> None:
    x, W_router, *matrices = inputs(rng, 3)
    elsewhere = np.eye(E)[[4, 0, 2]]
    y, saved = mixture_forward(
        x,
        W_router,
        *matrices,
        k=1,
        renormalise=True,
        station=lambda name, array: elsewhere if name == "weights" else array,
    )
    for token, e in enumerate((4, 0, 2)):
        want, _ = swiglu_forward(x[token], *(W[e] for W in matrices))
        np.testing.assert_allclose(y[token], want, rtol=1e-13)
    dx, dW_router, *_ = mixture_backward(np.ones_like(y), saved)
    assert dx.any()
    assert not dW_router.any()  # it has not chosen these


@pytest.mark.hf
@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe"])
@pytest.mark.parametrize("k", [1, 2, E])
def test_that_of_transformers(
    hf: None, name: str, k: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its softmax in float64, which is in float32 otherwise."""
    import torch
    from transformers import MixtralConfig, Qwen3MoeConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

    x, W_router, W_gate, W_up, W_down = inputs(rng, 2, 7)
    sizes = {"hidden_size": D, "num_experts_per_tok": k, "experts_implementation": "eager"}
    block: Any
    if name == "mixtral":
        block = MixtralSparseMoeBlock(
            MixtralConfig(num_local_experts=E, intermediate_size=F, **sizes)
        )
    else:
        block = Qwen3MoeSparseMoeBlock(
            Qwen3MoeConfig(num_experts=E, moe_intermediate_size=F, **sizes)
        )
    state = {
        "gate.weight": W_router.T,
        "experts.gate_up_proj": np.concatenate([W_gate, W_up], axis=-1).swapaxes(1, 2),
        "experts.down_proj": W_down.swapaxes(1, 2),
    }
    block.double().load_state_dict({key: torch.from_numpy(W.copy()) for key, W in state.items()})
    monkeypatch.setattr(torch, "float", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    there = torch.tensor(x, requires_grad=True)
    want = block(there)
    y, saved = mixture_forward(
        x, W_router, W_gate, W_up, W_down, k=k, renormalise=name == "mixtral"
    )
    assert relative_error(y, want.detach().numpy()) <= 1e-14
    dy = rng.standard_normal(y.shape)
    want.backward(torch.from_numpy(dy))
    dx, dW_router, dW_gate, dW_up, dW_down = stacked_backward(dy, saved)
    got = {
        "gate.weight": dW_router.T,
        "experts.gate_up_proj": np.concatenate([dW_gate, dW_up], axis=-1).swapaxes(1, 2),
        "experts.down_proj": dW_down.swapaxes(1, 2),
    }
    for key, parameter in block.named_parameters():
        np.testing.assert_allclose(got[key], parameter.grad.numpy(), rtol=0, atol=1e-13)
    assert relative_error(dx, there.grad.numpy()) <= 1e-13
