"""The sample inputs by which torch tests its operators, through npgpt's, with their gradients.

They come from torch's operator database, `op_db`. A sample with a setting that npgpt does not have
(weighted classes, a mask of numbers, a negative eps) does not count, nor one that draws at random.
How many must count is written down.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

from npgpt.layers.attention import attend_backward, attend_forward
from npgpt.ops import activation
from npgpt.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward
from npgpt.ops.dropout import dropout_backward, dropout_forward
from npgpt.ops.layer_norm import layer_norm_backward, layer_norm_forward
from npgpt.ops.linear import linear_backward, linear_forward
from npgpt.ops.lookup import lookup_backward, lookup_forward
from npgpt.ops.project import project_backward, project_forward
from npgpt.ops.rms_norm import rms_norm_backward, rms_norm_forward
from npgpt.ops.softmax import log_softmax, softmax_backward, softmax_forward
from npgpt.ops.weighted_sum import weighted_sum_backward, weighted_sum_forward

# The output, and what makes of its gradient those of the float inputs, in torch's order; None: not
# offered.
Found = tuple[Any, Callable[[np.ndarray], tuple[Any, ...]]] | None


def plain(name: str, x: np.ndarray) -> Found:
    y, saved = getattr(activation, f"{name}_forward")(x)
    return y, lambda dy: (getattr(activation, f"{name}_backward")(dy, saved),)


def gelu(x: np.ndarray, *, approximate: str) -> Found:
    return plain({"none": "gelu_erf", "tanh": "gelu_tanh"}[approximate], x)


def softmax(x: np.ndarray, dim: int) -> Found:
    if not x.ndim or not x.size:
        return None
    y, saved = softmax_forward(x, axis=dim)
    return y, lambda dy: (softmax_backward(dy, saved),)


def log_softmax_and_gradient(x: np.ndarray, dim: int) -> Found:
    """What its gradient would be, from softmax's."""
    if not x.ndim or not x.size:
        return None
    y = np.moveaxis(log_softmax(np.moveaxis(x, dim, -1)), -1, dim)
    probs, _ = softmax_forward(x, axis=dim)
    return y, lambda dy: (dy - probs * dy.sum(axis=dim, keepdims=True),)


def cross_entropy(
    x: np.ndarray,
    targets: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Found:
    """Classes stand on axis 1."""
    if targets.dtype.kind == "f" or weight is not None or reduction != "mean":
        return None
    loss, saved = cross_entropy_forward(np.moveaxis(x, 1, -1), targets, ignore_index=ignore_index)
    return loss, lambda dy: (np.moveaxis(cross_entropy_backward(float(dy), saved), -1, 1),)


def norm(
    forward: Any,
    backward: Any,
    x: np.ndarray,
    shape: tuple[int, ...],
    *params: np.ndarray,
    eps: float | None = None,
) -> Found:
    """Over the last axes, which npgpt has as one."""
    if eps is not None and eps < 0:
        return None
    if eps is None:
        eps = 1e-5 if forward is layer_norm_forward else float(np.finfo(x.dtype).eps)
    d = math.prod(shape)
    given = [param.reshape(d) for param in params] or [np.ones(d), np.zeros(d)]
    given = given[: 2 if forward is layer_norm_forward else 1]
    y, saved = forward(x.reshape(*x.shape[: x.ndim - len(shape)], d), *given, eps=eps)

    def grads(dy: np.ndarray) -> tuple[np.ndarray, ...]:
        found = backward(dy.reshape(y.shape), saved)
        return tuple(g.reshape(p.shape) for g, p in zip(found, (x, *params), strict=False))

    return y.reshape(x.shape), grads


def linear(x: np.ndarray, W: np.ndarray, *b: np.ndarray) -> Found:
    y, saved = linear_forward(x, W.T, *b) if b else project_forward(x, W.T)

    def grads(dy: np.ndarray) -> tuple[np.ndarray, ...]:
        dx, dW, *db = (linear_backward if b else project_backward)(dy, saved)
        return dx, dW.T, *db

    return y, grads


def matmul(a: np.ndarray, b: np.ndarray) -> Found:
    """Of a row and a matrix, or of as many matrices each."""
    if b.ndim == 2 and a.size:
        y, saved = project_forward(a, b)
        return y, lambda dy: project_backward(dy, saved)
    if a.ndim > 2 and a.shape[:-2] == b.shape[:-2]:
        y, saved = weighted_sum_forward(a, b)
        return y, lambda dy: weighted_sum_backward(dy, saved)
    return None


def embedding(table: np.ndarray, ids: np.ndarray) -> Found:
    y, saved = lookup_forward(ids, table)
    return y, lambda dy: (lookup_backward(dy, saved),)


def dropout(x: np.ndarray, *, p: float = 0.5, training: bool = True) -> Found:
    if p == 1 or (p and training):
        return None
    y, saved = dropout_forward(x, p=p, rng=np.random.default_rng(0) if training else None)
    return y, lambda dy: (dropout_backward(dy, saved),)


def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *,
    attn_mask: np.ndarray | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    flash: bool = False,
) -> Found:
    """torch counts a causal mask from the upper left corner."""
    if attn_mask is not None or dropout_p or q.shape[:-2] != k.shape[:-2]:
        return None
    mask = np.ones((q.shape[-2], k.shape[-2]), bool)
    mask = np.tril(mask) if is_causal else mask
    y, saved = attend_forward(q, k, v, divisor=math.sqrt(q.shape[-1]), mask=mask, flash=flash)
    return y, lambda dy: attend_backward(dy, saved)


# torch's operator, how npgpt computes it, how many samples count at least.
OPERATORS: list[tuple[str, Any, int]] = [
    ("nn.functional.scaled_dot_product_attention", attention, 8),
    ("nn.functional.scaled_dot_product_attention", partial(attention, flash=True), 8),
    ("nn.functional.linear", linear, 18),
    ("matmul", matmul, 4),
    ("bmm", matmul, 1),
    ("nn.functional.layer_norm", partial(norm, layer_norm_forward, layer_norm_backward), 5),
    ("nn.functional.rms_norm", partial(norm, rms_norm_forward, rms_norm_backward), 5),
    ("softmax", softmax, 5),
    ("log_softmax", log_softmax_and_gradient, 5),
    ("nn.functional.cross_entropy", cross_entropy, 6),
    ("nn.functional.gelu", gelu, 8),
    ("nn.functional.relu", partial(plain, "relu"), 4),
    ("nn.functional.silu", partial(plain, "silu"), 3),
    ("tanh", partial(plain, "tanh"), 1),
    ("nn.functional.embedding", embedding, 3),
    ("nn.functional.dropout", dropout, 9),
]


@pytest.fixture(scope="module")
def op_db(hf: None) -> dict[str, Any]:
    """torch's operator database by name, without variants."""
    if importlib.util.find_spec("expecttest") is None:
        pytest.skip('torch\'s samples need: pip install "npgpt[parity]"')
    # Its module reads the command line when it is imported.
    with mock.patch.object(sys, "argv", sys.argv[:1]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {op.name: op for op in op_db if not op.variant_test_name}


@pytest.mark.hf
@pytest.mark.parametrize(("name", "ours", "at_least"), OPERATORS, ids=[n for n, *_ in OPERATORS])
def test_every_sample_that_npgpt_offers(op_db, name, ours, at_least) -> None:
    import torch

    def as_numpy(value: Any) -> Any:
        return value.detach().numpy() if isinstance(value, torch.Tensor) else value

    torch.manual_seed(0)
    got, want, counted = {}, {}, 0
    for n, sample in enumerate(op_db[name].sample_inputs("cpu", torch.float64, requires_grad=True)):
        inputs = [sample.input, *sample.args]
        settings = {key: as_numpy(value) for key, value in sample.kwargs.items()}
        found = ours(*map(as_numpy, inputs), **settings)
        if found is None:
            continue
        counted += 1
        got[f"sample {n}"], backward = found
        y = op_db[name](*inputs, **sample.kwargs)
        dy = torch.randn(y.shape, dtype=y.dtype)
        y.backward(dy)
        want[f"sample {n}"] = as_numpy(y)
        leaves = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
        for i, (grad, leaf) in enumerate(zip(backward(dy.numpy()), leaves, strict=True)):
            got[f"sample {n}, gradient {i}"] = grad
            want[f"sample {n}, gradient {i}"] = leaf.grad.numpy()
    assert counted >= at_least
    for what in want:
        np.testing.assert_allclose(got[what], want[what], rtol=1e-12, atol=1e-12, err_msg=what)
