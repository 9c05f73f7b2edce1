"""Values and gradients of every operation against torch's autograd, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npgpt.ops.activation import ACTIVATIONS
from npgpt.ops.linear import linear_backward, linear_forward
from npgpt.ops.mask import attention_mask_for, causal_mask, mask_backward, mask_forward
from npgpt.ops.scores import scale_backward, scale_forward, scores_backward, scores_forward
from npgpt.ops.softmax import softmax_backward, softmax_forward
from npgpt.ops.weighted_sum import weighted_sum_backward, weighted_sum_forward
from tests.gradcheck import relative_error
from tests.ops import article
from tests.ops.cases import CASES, D_H, D, F, H, S, T, V, some_mask, some_turns

pytestmark = [pytest.mark.hf, pytest.mark.usefixtures("hf")]


def in_torch(name: str) -> Callable[..., Any]:
    """The same operation, said in torch."""
    import torch
    from torch.nn import functional as tf

    seen = torch.from_numpy(some_mask())
    cos, sin = (torch.from_numpy(np.tile(turn, 2)) for turn in some_turns())
    said: dict[str, Callable[..., Any]] = {
        "lookup": lambda ids, table: tf.embedding(ids, table),
        "position": lambda x, positions, table: x + tf.embedding(positions, table),
        "position shared": lambda x, positions, table: x + tf.embedding(positions, table),
        "rope": lambda x: x * cos + torch.cat((-x[..., D_H // 2 :], x[..., : D_H // 2]), -1) * sin,
        "project": lambda x, W: tf.linear(x, W.T),
        "linear": lambda x, W, b: tf.linear(x, W.T, b),
        "split_heads": lambda x: x.unflatten(-1, (H, D_H)).transpose(-3, -2),
        "merge_heads": lambda x: x.transpose(-3, -2).flatten(-2),
        "group_queries": lambda q: q.unflatten(-3, (H, 2)),
        "ungroup_queries": lambda x: x.flatten(-4, -3),
        "share_heads": lambda x: x.repeat_interleave(2, dim=-3).unflatten(-3, (H, 2)),
        "scores": lambda q, k: q @ k.mT,
        "scale": lambda x: x / 1.7,
        "mask": lambda x, mask: x.masked_fill(~mask, -torch.inf),
        "softmax": lambda x: tf.softmax(x, dim=-1),
        "softmax along queries": lambda x: tf.softmax(x, dim=-2),
        "top_k": lambda x: torch.zeros_like(x).scatter(-1, *reversed(x.topk(3))),
        "renormalise": lambda weights: weights / weights.sum(dim=-1, keepdim=True),
        # Of five tokens one does not count.
        "load_balance": lambda probs, chosen: (
            F
            * chosen.double()[..., [0, 2, 3, 4], :].flatten(0, -2).mean(dim=0)
            @ probs[..., [0, 2, 3, 4], :].flatten(0, -2).mean(dim=0)
        ),
        "weighted_sum": lambda probs, v: probs @ v,
        # Weights of 0 for the query that may attend to nothing, where torch's softmax has NaN.
        "flash_attention": lambda q, k, v: (
            tf.softmax((q @ k.mT / 1.7).masked_fill(~seen, -1e30), dim=-1) * seen @ v
        ),
        "gelu_tanh": lambda x: tf.gelu(x, approximate="tanh"),
        "gelu_erf": lambda x: tf.gelu(x),
        "relu": tf.relu,
        "silu": tf.silu,
        "tanh": torch.tanh,
        "layer_norm": lambda x, weight, bias: tf.layer_norm(x, (D,), weight, bias, eps=1e-5),
        "rms_norm": lambda x, weight: tf.rms_norm(x, (D,), weight, eps=1e-5),
        "lm_head": lambda x, table: tf.linear(x, table),
        "lm_head_loss": lambda x, targets, table: tf.cross_entropy(
            tf.linear(x, table).reshape(-1, V), targets.flatten()
        ),
        "cross_entropy": lambda x, targets: tf.cross_entropy(x.reshape(-1, V), targets.flatten()),
        "label_smoothing": lambda x, targets: tf.cross_entropy(
            x.reshape(-1, V), targets.flatten(), label_smoothing=0.15
        ),
    }
    return said[name]


def torch_results(
    function: Callable[..., Any], inputs: tuple[np.ndarray, ...], dy: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Output, and the gradients of the float inputs."""
    import torch

    tensors = [torch.tensor(x, requires_grad=x.dtype.kind == "f") for x in inputs]
    y = function(*tensors)
    y.backward(torch.tensor(dy))
    return y.detach().numpy(), [t.grad.numpy() for t in tensors if t.requires_grad]


@pytest.mark.parametrize("lead", [(), (2,), (2, 6)], ids=str)
@pytest.mark.parametrize("name", [name for name in CASES if name != "dropout"])
def test_values_and_gradients(name: str, lead: tuple[int, ...], rng: np.random.Generator) -> None:
    case = CASES[name]
    data, params = case.inputs(rng, lead)
    y, saved = case.run(*data, *params)
    dy = np.asarray(rng.standard_normal(np.shape(y)))
    want_y, want_grads = torch_results(in_torch(name), (*data, *params), dy)
    assert relative_error(y, want_y) <= 1e-12
    for got, want in zip(case.grads(dy, saved), want_grads, strict=True):
        assert got.shape == want.shape
        assert relative_error(got, want) <= 1e-12


def test_dropout_with_the_mask_that_was_drawn(rng: np.random.Generator) -> None:
    """torch draws other numbers, so it is given ours."""
    x, dy = rng.standard_normal((2, 5, 7))
    y, saved = CASES["dropout"].run(x)
    factor = np.where(y == 0, 0.0, 1 / 0.7)
    want_y, want_grads = torch_results(lambda t: t * t.new_tensor(factor), (x,), dy)
    assert relative_error(y, want_y) <= 1e-12
    assert relative_error(CASES["dropout"].backward(dy, saved), want_grads[0]) <= 1e-12


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_under_their_hugging_face_names(name: str, rng: np.random.Generator) -> None:
    from transformers.activations import ACT2FN

    x, dy = 3 * rng.standard_normal((2, 5, 7))
    y, saved = ACTIVATIONS[name][0](x)
    want_y, want_grads = torch_results(ACT2FN[name], (x,), dy)
    assert relative_error(y, want_y) <= 1e-12
    assert relative_error(ACTIVATIONS[name][1](dy, saved), want_grads[0]) <= 1e-12


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray, dcontext: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Steps 2 to 6 and their backward pass."""
    scores, saved_scores = scores_forward(q, k)
    scaled, saved_scale = scale_forward(scores, divisor=math.sqrt(q.shape[-1]))
    masked, saved_mask = mask_forward(scaled, mask)
    probs, saved_softmax = softmax_forward(masked, axis=-1)
    context, saved_sum = weighted_sum_forward(probs, v)
    dprobs, dv = weighted_sum_backward(dcontext, saved_sum)
    dmasked = softmax_backward(dprobs, saved_softmax)
    dscores = scale_backward(mask_backward(dmasked, saved_mask), saved_scale)
    return context, (*scores_backward(dscores, saved_scores), dv)


@pytest.mark.parametrize(
    "mask",
    [causal_mask(T, S), some_mask(), attention_mask_for(T, S, np.array([[0] * 4 + [1] * 3] * 2))],
    ids=["causal", "one query sees nothing", "padding"],
)
def test_six_steps_equal_scaled_dot_product_attention(
    mask: np.ndarray, rng: np.random.Generator
) -> None:
    import torch
    from torch.nn import functional as tf

    q, k, v, dcontext = (rng.standard_normal((2, H, n, D_H)) for n in (T, S, S, T))
    context, grads = attention(q, k, v, mask, dcontext)
    want, want_grads = torch_results(
        lambda q, k, v: tf.scaled_dot_product_attention(
            q, k, v, attn_mask=torch.tensor(mask.copy())
        ),
        (q, k, v),
        dcontext,
    )
    assert relative_error(context, want) <= 1e-12
    for got, want_grad in zip(grads, want_grads, strict=True):
        assert relative_error(got, want_grad) <= 1e-12


def test_article_the_toy_model_against_scaled_dot_product_attention() -> None:
    """In float32 the article saw 5.96e-8."""
    from torch.nn import functional as tf

    def in_one_head(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (t[None, None] for t in (q, k, v))
        return tf.scaled_dot_product_attention(q, k, v, is_causal=True)[0, 0]

    q, k, v = (a.astype(np.float32) for a in (article.Q, article.K, article.X))
    context, _ = attention(q, k, v, causal_mask(3, 3), np.zeros_like(q))
    want, _ = torch_results(in_one_head, (q, k, v), np.zeros_like(q))
    assert context.dtype == np.float32
    assert np.abs(context - want).max() <= 1.2e-7


def test_a_whole_head_with_its_projections(rng: np.random.Generator) -> None:
    """Step 1 included: x gets three gradients, which add up."""
    from torch.nn import functional as tf

    x, dcontext = rng.standard_normal((2, T, D)), rng.standard_normal((2, T, D_H))
    weights, biases = rng.standard_normal((3, D, D_H)), rng.standard_normal((3, D_H))
    projected = [linear_forward(x, W, b) for W, b in zip(weights, biases, strict=True)]
    q, k, v = (y for y, _ in projected)
    context, dqkv = attention(q, k, v, causal_mask(T, T), dcontext)
    back = [linear_backward(dy, saved) for dy, (_, saved) in zip(dqkv, projected, strict=True)]

    def torch_head(x: Any, W: Any, b: Any) -> Any:
        q, k, v = (x @ W[i] + b[i] for i in range(3))
        return tf.scaled_dot_product_attention(q, k, v, is_causal=True)

    want, (dx, dW, db) = torch_results(torch_head, (x, weights, biases), dcontext)
    assert relative_error(context, want) <= 1e-12
    assert relative_error(back[0][0] + back[1][0] + back[2][0], dx) <= 1e-12
    assert relative_error(np.stack([grads[1] for grads in back]), dW) <= 1e-12
    # Softmax ignores what all keys share, so the key bias has the gradient 0 up to rounding.
    assert relative_error(np.stack([grads[2] for grads in back]), db) <= 1e-12
