"""The FFN: why it bends, and how large it is (article 8.1, 8.2). Llama's is in ch08_swiglu.py."""

from __future__ import annotations

import math

import numpy as np
from show import check, claim, heading, moved, say

from npgpt.layers.feed_forward import feed_forward_forward
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.ops.activation import gelu_tanh_forward, relu_forward
from npgpt.ops.linear import linear_forward

Layer = tuple[np.ndarray, np.ndarray]  # W and b


def layers_of(number: int, d: int, rng: np.random.Generator) -> list[Layer]:
    """W and b of linear layers d -> d that keep the size of what goes through."""
    return [(rng.normal(0, d**-0.5, (d, d)), rng.normal(0, 0.1, d)) for _ in range(number)]


def best_matrix(x: np.ndarray, y: np.ndarray) -> float:
    """How far the best single matrix with bias is from y = f(x), as a share of y's spread."""
    padded = np.hstack([x, np.ones((len(x), 1))])
    W, *_ = np.linalg.lstsq(padded, y, rcond=None)
    return float(np.linalg.norm(padded @ W - y) / np.linalg.norm(y - y.mean(axis=0)))


def without_a_bend() -> None:
    """8.1: linear layers fold into one."""
    heading(
        "8.1", say("without a nonlinearity a hundred layers are one", "没有非线性，一百层等于一层")
    )
    rng, d = np.random.default_rng(0), 6
    x = rng.standard_normal((200, d))  # 200 points for the 7 numbers of each output
    y, W, b = x, np.eye(d), np.zeros(d)
    for weight, bias in layers_of(100, d, rng):
        y, _ = linear_forward(y, weight, bias)
        W, b = W @ weight, b @ weight + bias
    claim(
        say(
            "100 layers are x times one matrix, plus one vector",
            "100 层就是 x 乘一个矩阵，加一个向量",
        ),
        np.allclose(y, x @ W + b),
    )
    two_layers(x, *layers_of(2, d, rng))


def two_layers(x: np.ndarray, first: Layer, second: Layer) -> None:
    """8.1: one matrix stands for two linear layers, but not with a nonlinearity in between."""
    wide, _ = linear_forward(x, *first)
    straight, bent = (linear_forward(z, *second)[0] for z in (wide, gelu_tanh_forward(wide)[0]))
    print(
        say(
            "  Two layers, 200 points, and the one matrix that fits best:",
            "  两层、200 个点，用最合适的一个矩阵去拟合：",
        )
    )
    off = best_matrix(x, straight), best_matrix(x, bent)
    claim(
        say(
            f"fits two linear layers exactly, off by {off[0]:.0e}",
            f"两个线性层：完全拟合，误差 {off[0]:.0e}",
        ),
        off[0] < 1e-12,
    )
    claim(
        say(
            f"misses the same two with GELU in between by {100 * off[1]:.0f} %",
            f"同样两层，中间加一个 GELU：误差 {100 * off[1]:.0f} %",
        ),
        off[1] > 0.1,
    )


def gelu() -> None:
    """8.1: GELU against ReLU; d -> 4 d -> d, each token by itself."""
    heading(
        "8.1",
        say(
            "GELU is a smooth ReLU: on the left it goes down to 0 gently",
            "GELU 是平滑的 ReLU：负半轴缓缓压到 0",
        ),
    )
    x = np.array([-4.0, -2, -1, -0.5, 0, 0.5, 1, 2, 4])
    soft, hard = gelu_tanh_forward(x)[0], relu_forward(x)[0]
    for name, values in (("x", x), ("GELU", soft), ("ReLU", hard)):
        print(f"  {name:6}" + "".join(f"{value:8.3f}" for value in values))
    claim(
        say(
            f"{soft[2]:.2f} at -1 and back at 0 by -4; by 4 it is x itself",
            f"-1 处是 {soft[2]:.2f}，到 -4 已回到 0；到 4 就是 x 本身",
        ),
        -0.2 < soft[2] < -0.1 and np.allclose(soft[[0, -1]], hard[[0, -1]], atol=1e-3),
    )


def widened() -> None:
    """8.1: d -> 4 d -> d, each token by itself."""
    heading(
        "8.1",
        say("widen, bend, narrow: each token by itself", "放大、非线性、压回：每个 token 各自算"),
    )
    shapes = {
        name: shape
        for name, shape in param_shapes(GPT2Config()).items()
        if name.startswith("h.0.mlp")
    }
    rng = np.random.default_rng(0)
    weights = [0.02 * rng.standard_normal(shape) for shape in shapes.values()]
    x = rng.standard_normal((4, GPT2Config().n_embd))
    y, saved = feed_forward_forward(x, *weights, activation="gelu_new")
    wide = saved.c_proj[0]
    claim(
        f"{[*x.shape]} -> {[*wide.shape]} -> GELU -> {[*y.shape]}",
        y.shape == x.shape and wide.shape[1] == 4 * x.shape[1],
    )
    x[1] += 1
    other, _ = feed_forward_forward(x, *weights, activation="gelu_new")
    claim(
        say("change token 1: only its own row changes", "改动 token 1：只有它自己那一行变"),
        moved(y, other).tolist() == [False, True, False, False],
    )


def two_thirds() -> None:
    """8.2: 8 d² against 4 d²."""
    heading(
        "8.2",
        say(
            "two thirds of a block: 8 d² for the FFN, 4 d² for attention",
            "一层的三分之二：FFN 8d²，attention 4d²",
        ),
    )
    sizes = {name: math.prod(shape) for name, shape in param_shapes(GPT2Config()).items()}

    def count(part: str) -> int:
        return sum(size for name, size in sizes.items() if name.startswith(f"h.0.{part}"))

    check(say("FFN of a block", "一层的 FFN"), count("mlp"), "4,722,432")
    check(say("attention of a block", "一层的 attention"), count("attn"), "2,362,368")
    check(
        say("share of the FFN in the block", "FFN 在一层里占"),
        100 * count("mlp") / count(""),
        "66.6",
        "%",
    )


without_a_bend()
gelu()
widened()
two_thirds()
