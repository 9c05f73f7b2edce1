"""The router: each token goes to a few experts, copies of the FFN (article 8.3).

Three tokens through four experts, what the router learns from on the way back, and the sizes of
Mixtral. ch08_experts.py trains a mixture.
"""

from __future__ import annotations

import math

import numpy as np
from show import check, claim, heading, matrices, moved, say

from npgpt.describe.architectures import PRESETS
from npgpt.layers.mixture import MixtureSaved, mixture_backward, mixture_forward
from npgpt.layers.swiglu import swiglu_forward
from npgpt.models.llama.config import LlamaConfig, param_shapes

TOKENS, E, F = ["t0", "t1", "t2"], 4, 5
X = np.array([[1.0, 0], [0, 1], [1, 1]])
W_ROUTER = np.array([[2.0, 1, 0, -1], [-2, 0, 3, 1]])
RNG = np.random.default_rng(0)
W_GATE, W_UP = RNG.standard_normal((2, E, 2, F))
W_DOWN = RNG.standard_normal((E, F, 2))
DY = RNG.standard_normal(X.shape)


def mixture(
    W_down: np.ndarray = W_DOWN, W_router: np.ndarray = W_ROUTER, k: int = 2
) -> tuple[np.ndarray, MixtureSaved]:
    """The output [T, d] and what backward reads."""
    return mixture_forward(X, W_router, W_GATE, W_UP, W_down, k=k, renormalise=True)


def only(e: int, value: float) -> np.ndarray:
    """All matrices W_down, that of expert e times a value."""
    return W_DOWN * np.where(np.arange(E) == e, value, 1.0)[:, None, None]


heading("8.3", say("three tokens, four experts, two for each", "三个 token、四个专家，各找两个"))
y, saved = mixture()
probs, weights = saved.router.probs, saved.weights
steps = ("scores = x W", X @ W_ROUTER), ("p = softmax", probs), ("weights", weights)
matrices(*steps, rows=TOKENS)
said = [swiglu_forward(X, *W)[0] for W in zip(W_GATE, W_UP, W_DOWN, strict=True)]
claim(
    say(
        "y = Σ weight · expert(x); an expert is an FFN like Llama's",
        "y = Σ 权重 · 专家(x)；每个专家就是一个 Llama 那样的 FFN",
    ),
    np.allclose(y, sum(weights[:, [e]] * said[e] for e in range(E))),
)
largest = probs >= np.sort(probs)[:, [-2]]
claim(
    say(
        "the two with the largest p, their weights made to sum to 1", "p 最大的两个，权重凑成和为 1"
    ),
    np.allclose(weights, probs * largest / (probs * largest).sum(axis=1, keepdims=True)),
)
for e, rows in enumerate(((0,), (0, 2), (1, 2), (1,))):
    changed = moved(y, mixture(only(e, 2.0))[0])
    marks = " ".join("■" if each else "·" for each in changed)
    claim(
        say(f"change expert {e}: rows that change   {marks}", f"改动专家 {e}：变的行   {marks}"),
        np.flatnonzero(changed).tolist() == [*rows],
    )
unasked = ~np.isnan(mixture(only(3, np.nan))[0]).any(axis=1)
claim(
    say(
        "fill expert 3 with NaN: t0 and t2 do not go there, so it is never computed for them",
        "把专家 3 填满 NaN：t0、t2 没去找它，根本不为它们计算",
    ),
    unasked.tolist() == [True, False, True],
)

heading(
    "8.3",
    say("and back: the weights learn, the choice gets nothing", "反向：权重有梯度，“选谁”没有"),
)


def gradient(k: int) -> np.ndarray:
    """That of the router's matrix."""
    return mixture_backward(DY, mixture(k=k)[1])[1]


def nudged(k: int) -> np.ndarray:
    """The same by central differences: nudge each number of the matrix up and down."""
    found = np.zeros_like(W_ROUTER)
    for at in np.ndindex(W_ROUTER.shape):
        nudge = np.zeros_like(W_ROUTER)
        nudge[at] = 1e-5
        up, down = ((mixture(W_router=W_ROUTER + s * nudge, k=k)[0] * DY).sum() for s in (1, -1))
        found[at] = (up - down) / 2e-5
    return found


matrices((say("dW of the router", "router 的 dW"), gradient(2)))
claim(
    say(
        "nudging the router's W shows the same: a small nudge changes no choice",
        "逐个微调 router 的 W，结果一致：微小的改动不会改变选择",
    ),
    np.allclose(gradient(2), nudged(2), atol=1e-8),
)
claim(
    say(
        "with one expert a token the weight is always 1: no gradient for the router at all",
        "每个 token 只找一个专家时权重恒为 1：router 完全没有梯度",
    ),
    np.allclose(gradient(1), 0) and np.allclose(nudged(1), 0),
)

heading(
    "8.3",
    say(
        "Mixtral 8x7B: the FFN is copied, not the attention",
        "Mixtral 8x7B：复制的是 FFN，不是 attention",
    ),
)
mixtral = PRESETS["mixtral-8x7b"]
assert isinstance(mixtral, LlamaConfig)
sizes = {name: math.prod(shape) for name, shape in param_shapes(mixtral).items()}


def billions(*parts: str) -> float:
    """Parameters whose names have one of these in them."""
    return sum(n for name, n in sizes.items() if any(part in name for part in parts)) / 1e9


one, attention, whole = billions(".experts.0."), billions("self_attn"), billions("")
check(
    say("attention of all blocks, in billions", "全部 block 的 attention，单位十亿"),
    attention,
    "1.3",
)
check(say("one expert in each block", "每个 block 一个专家"), one, "5.6")
check(say("with eight, and all the rest", "八个专家，加上其余全部"), whole, "46.7")
check(
    say("at work for a token: two experts", "每个 token 用到的：两个专家"), whole - 6 * one, "12.9"
)
