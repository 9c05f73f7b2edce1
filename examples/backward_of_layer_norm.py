"""LayerNorm backward, on (2, 4, 4, 6): x reaches the result by three roads (article 9.2).

The article's vector has mean 4 and variance 2; ε is 0 here, so that the numbers stay simple.
"""

from __future__ import annotations

import numpy as np
from nudged import LEGEND, Column, nudged, side_by_side, there_and_back
from show import claim, heading, say

from npgpt.ops.layer_norm import layer_norm_backward, layer_norm_forward

C, PAIR = Column, (layer_norm_forward, layer_norm_backward)
x, ones, zeros, d = np.array([[2.0, 4, 4, 6]]), np.ones(4), np.zeros(4), 4
print(LEGEND)

heading("9.2", say("forward: x̂ = (x - mean) rstd", "前向：x̂ = (x - 均值) rstd"))
mean, variance = x.mean(keepdims=True), x.var(keepdims=True)
rstd = 1 / np.sqrt(variance)
x_hat, _ = layer_norm_forward(x, ones, zeros, eps=0.0)
names = say("mean", "均值"), say("variance", "方差"), "rstd = 1/√2"
side_by_side(C("x", x), *map(C, names, (mean, variance, rstd)), C("x̂", x_hat), digits=3)

heading(
    "9.2",
    say(
        "the Jacobian: column j says how x̂ moves with x_j", "雅可比矩阵：第 j 列说 x̂ 随 x_j 怎样变"
    ),
)
roads = np.eye(d), np.full((d, d), 1 / d), x_hat.T @ x_hat / d
names = (
    say("direct: δ", "直接：δ"),
    say("mean: 1/d", "均值：1/d"),
    say("variance: x̂ x̂ᵀ/d", "方差：x̂ x̂ᵀ/d"),
)
formula = ("J = rstd (δ - 1/d - x̂ x̂ᵀ/d)", rstd * (roads[0] - roads[1] - roads[2]))
rows = np.repeat(x, d, axis=0)  # row i asks for the gradient of x̂_i
formulas = formula, ("dγ", x_hat[0]), ("dβ", ones)
_, [jacobian, *_] = there_and_back(*PAIR, (rows, ones, zeros), np.eye(d), *formulas, eps=0.0)
side_by_side(*map(C, names, roads))
side_by_side(jacobian)
claim(
    say(
        "each row sums to 0: adding 1 to all of x changes nothing",
        "每行之和为 0：x 整体加 1，什么也不变",
    ),
    np.allclose(jacobian.matrix.sum(axis=1), 0),
)
claim(
    say("times x̂ it is 0: neither does stretching x", "乘 x̂ 也得 0：把 x 拉长，什么也不变"),
    np.allclose(jacobian.matrix @ x_hat[0], 0),
)

heading("9.2", say("backward: a dy arrives at y = x̂ γ + β", "反向：dy 来到 y = x̂ γ + β"))
gamma, beta, dy = np.array([1.0, 2, 1, 0.5]), np.array([0.0, 1, 0, 0]), np.array([[4.0, 2, 0, 0]])
g = dy * gamma
formulas = (
    ("dx = rstd (g - mean(g) - x̂ mean(g x̂))", rstd * (g - g.mean() - x_hat * (g * x_hat).mean())),
    ("dγ = dy x̂", (dy * x_hat)[0]),
    ("dβ = dy", dy[0]),
)
y, [dx, dgamma, dbeta] = there_and_back(*PAIR, (x, gamma, beta), dy, *formulas, eps=0.0)
side_by_side(C("γ", gamma[None]), C("β", beta[None]), C("y", y), C("dy", dy))
side_by_side(dgamma, dbeta, C("g = dy γ", g), C("g x̂", g * x_hat))


def by_road(direct: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> float:
    """L where each road begins at an x of its own."""
    return (g * (direct - mean.mean()) / variance.std()).sum()


heading(
    "9.2",
    say(
        "road by road: x is read three times, nudge one at a time",
        "一条路一条路地走：x 被读三次，每次只推一处",
    ),
)
direct = nudged(
    say("direct: rstd g", "直接：rstd g"), rstd * g, lambda moved: by_road(moved, x, x), x
)
share = -rstd * np.full_like(x, g.mean())
by_mean = nudged(
    say("mean: -rstd mean(g)", "均值：-rstd mean(g)"), share, lambda moved: by_road(x, moved, x), x
)
share = -rstd * x_hat * (g * x_hat).mean()
by_variance = nudged(
    say("variance: -rstd x̂ mean(g x̂)", "方差：-rstd x̂ mean(g x̂)"),
    share,
    lambda moved: by_road(x, x, moved),
    x,
)
side_by_side(direct, by_mean, by_variance)
side_by_side(dx)
claim(
    say("the three roads add up to dx", "三条路加起来就是 dx"),
    np.allclose(direct.matrix + by_mean.matrix + by_variance.matrix, dx.matrix),
)

heading(
    "9.2",
    say(
        "with ε > 0 the formula stays; a stretch leaves a trace",
        "ε > 0 时公式不变，拉长 x 会留下一点痕迹",
    ),
)
for eps in (1.0, 1e-5, 0.0):
    rstd = 1 / np.sqrt(variance + eps)
    x_hat, _ = layer_norm_forward(x, ones, zeros, eps=eps)
    formula = (f"J, ε = {eps:g}", rstd * (np.eye(d) - 1 / d - x_hat.T @ x_hat / d))
    formulas = formula, ("dγ", x_hat[0]), ("dβ", ones)
    _, [with_eps, *_] = there_and_back(*PAIR, (rows, ones, zeros), np.eye(d), *formulas, eps=eps)
    if eps == 1:
        side_by_side(with_eps, C("x̂", x_hat.T), C("J x̂", with_eps.matrix @ x_hat.T))
    trace = eps * rstd.item() ** 3
    text = f"ε = {eps:g}: J x̂ = ε rstd³ x̂ = {trace:.2g} x̂"
    claim(text, np.allclose(with_eps.matrix @ x_hat[0], trace * x_hat[0], atol=1e-14))
