"""The FFN: why it bends, and how large it is (article 8.1, 8.2)."""

from __future__ import annotations

import math

import numpy as np
from show import check, claim, heading, moved

from npgpt.layers.feed_forward import feed_forward_forward
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.ops.activation import gelu_tanh_forward, relu_forward
from npgpt.ops.linear import linear_forward


def without_a_bend() -> None:
    """8.1: linear layers fold into one."""
    heading("8.1", "without a nonlinearity a hundred layers are one")
    rng, d = np.random.default_rng(0), 6
    layers = [(rng.normal(0, d**-0.5, (d, d)), 0.1 * rng.standard_normal(d)) for _ in range(100)]
    x = y = bent = rng.standard_normal((5, d))
    W, b = np.eye(d), np.zeros(d)
    for weight, bias in layers:
        y, _ = linear_forward(y, weight, bias)
        bent, _ = gelu_tanh_forward(linear_forward(bent, weight, bias)[0])
        W, b = W @ weight, b @ weight + bias
    claim(
        "100 layers = x times one matrix, plus one vector",
        np.allclose(y, linear_forward(x, W, b)[0]),
    )
    ones = np.ones((len(x), 1))
    W, *_ = np.linalg.lstsq(np.hstack([x, ones])[:4], bent[:4], rcond=None)
    claim("with GELU in between no matrix does", not np.allclose(np.hstack([x, ones]) @ W, bent))


def gelu() -> None:
    """8.1: GELU against ReLU; d -> 4 d -> d, each token by itself."""
    heading("8.1", "GELU is a smooth ReLU: on the left it goes down to 0 gently")
    x = np.array([-4.0, -2, -1, -0.5, 0, 0.5, 1, 2, 4])
    for name, values in (("x", x), ("GELU", gelu_tanh_forward(x)[0]), ("ReLU", relu_forward(x)[0])):
        print(f"  {name:6}" + "".join(f"{value:8.3f}" for value in values))
    far, slope = np.array([-8.0, 8.0]), np.abs(gelu_tanh_forward(x)[0] - relu_forward(x)[0]).max()
    claim(
        f"at most {slope:.2f} apart here, the same far out",
        np.allclose(gelu_tanh_forward(far)[0], [0, 8]),
    )
    shapes = [
        shape for name, shape in param_shapes(GPT2Config()).items() if name.startswith("h.0.mlp")
    ]
    rng = np.random.default_rng(0)
    weights = [0.02 * rng.standard_normal(shape) for shape in shapes]
    x = rng.standard_normal((4, 768))
    y, saved = feed_forward_forward(x, *weights, activation="gelu_new")
    wide = saved.c_proj[0].shape
    claim(
        f"{[*x.shape]} -> {[*wide]} -> GELU -> {[*y.shape]}",
        y.shape == x.shape and wide == (4, 3072),
    )
    x[1] += 1
    other, _ = feed_forward_forward(x, *weights, activation="gelu_new")
    claim(
        "change token 1: only its own row changes",
        moved(y, other).tolist() == [False, True, False, False],
    )


def two_thirds() -> None:
    """8.2: 8 d² against 4 d²."""
    heading("8.2", "two thirds of a block: 8 d² for the FFN, 4 d² for attention")
    shapes = param_shapes(GPT2Config())
    sizes = {
        part: sum(
            math.prod(shape) for name, shape in shapes.items() if name.startswith(f"h.0.{part}")
        )
        for part in ("attn", "mlp", "")
    }
    check("FFN", sizes["mlp"], "4,722,432")
    check("attention", sizes["attn"], "2,362,368")
    check("share of the FFN in the block", 100 * sizes["mlp"] / sizes[""], "66.6", "%")


without_a_bend()
gelu()
two_thirds()
