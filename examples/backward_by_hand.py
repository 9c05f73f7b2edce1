"""The way back by hand: each operation's gradient, on numbers one can follow in the head.

In the article's order. LayerNorm's three roads are in backward_of_layer_norm.py, attention in
ch07_attention_six_steps.py, and all of it in a row in backward_of_a_block.py.
"""

from __future__ import annotations

import numpy as np
from nudged import LEGEND, Column, nudged, side_by_side, there_and_back
from show import claim, heading, say

from npgpt.ops.activation import gelu_tanh_backward, gelu_tanh_forward, relu_backward, relu_forward
from npgpt.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward
from npgpt.ops.linear import linear_backward, linear_forward
from npgpt.ops.lm_head import lm_head_backward, lm_head_forward
from npgpt.ops.lookup import lookup_backward, lookup_forward
from npgpt.ops.softmax import softmax_backward, softmax_forward

C = Column
print(LEGEND)

heading("5.2", say("lookup: a row that is read twice gets the sum", "查表：读了两次的行，梯度相加"))
ids, table = np.array([1, 0, 1]), np.array([[1.0, 0], [0, 1], [2, 1]])
dy, hot = np.array([[1.0, 2], [3, 4], [10, 20]]), np.eye(3)[ids]
formula = ("dtable = one_hotᵀ dy", hot.T @ dy)
y, [dtable] = there_and_back(lookup_forward, lookup_backward, (ids, table), dy, formula)
side_by_side(C("table", table), C("one_hot", hot), C("y = table[ids]", y), C("dy", dy), dtable)
claim(
    say(
        "row 1 gets (1, 2) + (10, 20); row 2, never read, nothing",
        "第 1 行得 (1, 2) + (10, 20)，第 2 行没读过，什么也没有",
    ),
    np.array_equal(dtable.matrix[1:], [[11, 22], [0, 0]]),
)

heading(
    "7.7", say("linear: each factor gets dy times the other", "线性层：每个因子得到 dy 乘另一个")
)
x, W, b = np.array([[1.0, 2], [3, 1]]), np.array([[1.0, 0, 2], [0, 1, 1]]), np.array([0.0, 1, 0])
dy = np.array([[1.0, 0, -1], [0, 2, 1]])
formulas = ("dx = dy Wᵀ", dy @ W.T), ("dW = xᵀ dy", x.T @ dy), ("db = Σ dy", dy.sum(axis=0))
y, back = there_and_back(linear_forward, linear_backward, (x, W, b), dy, *formulas)
side_by_side(C("x", x), C("W", W), C("y = x W + b", y), C("dy", dy), *back)

heading("8.1", say("GELU beside ReLU: what of dy comes through", "GELU 与 ReLU：dy 有多少能过去"))
x, ones, c = np.array([[-1.0], [0], [1]]), np.ones((3, 1)), np.sqrt(2 / np.pi)
tanh_u, du = np.tanh(c * (x + 0.044715 * x**3)), c * (1 + 3 * 0.044715 * x**2)
slope = (1 + tanh_u) / 2 + x / 2 * (1 - tanh_u**2) * du
formula = ("GELU' = (1 + tanh u)/2 + x/2 (1 - tanh² u) u'", slope)
y, [gelu] = there_and_back(gelu_tanh_forward, gelu_tanh_backward, (x,), ones, formula)
relu = relu_backward(ones, relu_forward(x)[1])
given = C("x", x), C("GELU", y), C("tanh u", tanh_u), C("u'", du)
side_by_side(*given, gelu, C("ReLU'", relu), digits=3)
left, middle, right = gelu.matrix[:, 0]
claim(
    say(
        "GELU' is 1/2 at 0, and GELU'(x) + GELU'(-x) = 1",
        "GELU' 在 0 处是 1/2，且 GELU'(x) + GELU'(-x) = 1",
    ),
    np.isclose(left + right, 1) and middle == 0.5,
)
claim(
    say(
        "at -1 ReLU lets nothing through; GELU does, with the sign turned",
        "在 -1 处 ReLU 什么也不放过；GELU 放过一点，还反了号",
    ),
    relu[0] == 0 and left < 0,
)
up, down = relu_forward(np.array([1e-5, -1e-5]))[0]
claim(
    say(
        "at 0 ReLU has a corner: differences say 1/2, npgpt and PyTorch take 0",
        "ReLU 在 0 处是个拐角：中心差分得 1/2，npgpt 与 PyTorch 取 0",
    ),
    np.isclose((up - down) / 2e-5, 0.5) and relu[1] == 0,
)

heading(
    "9.1",
    say("residual y = x + f(x): dy comes back two ways", "残差 y = x + f(x)：dy 从两条路回来"),
)
x, dy, W, b = np.array([[1.0, 2]]), np.array([[10.0, 1]]), np.array([[0.0, 1], [3, 0]]), np.zeros(2)
y, saved = linear_forward(x, W, b)
through, _, _ = linear_backward(dy, saved)
dx = nudged(
    "dx = dy + dy Wᵀ", dy + through, lambda x: (dy * (x + linear_forward(x, W, b)[0])).sum(), x
)
ways = (
    C(say("straight on: dy", "直通：dy"), dy),
    C(say("through f: dy Wᵀ", "经过 f：dy Wᵀ"), through),
)
side_by_side(C("x", x), C("f(x) = x W", y), *ways, dx)

heading(
    "10.1",
    say("softmax and cross-entropy: p - 1 at the target", "softmax 加交叉熵：目标处是 p - 1"),
)
scores, target, hot = np.array([[2.0, 1, 0]]), np.array([1]), np.eye(3)[[1]]
p, _ = softmax_forward(scores, axis=-1)
dp = -hot / p
formula = ("p (dp - Σ p dp)", p * (dp - (p * dp).sum()))
_, [long] = there_and_back(softmax_forward, softmax_backward, (scores,), dp, formula, axis=-1)
pair, formula = (cross_entropy_forward, cross_entropy_backward), ("dscores = p - hot", p - hot)
loss, [short] = there_and_back(*pair, (scores, target), 1.0, formula)
given = (
    C(say("scores", "分数"), scores),
    C("p = softmax", p),
    C(say("hot: the target", "hot：目标"), hot),
)
side_by_side(*given)
side_by_side(C("dp = - hot / p", dp), long, short)
claim(
    say(
        f"L = -ln {p[0, 1]:.3f} = {loss:.3f}; the log's 1/p meets softmax's p, p - hot is left",
        f"L = -ln {p[0, 1]:.3f} = {loss:.3f}；对数的 1/p 与 softmax 的 p 相消，剩下 p - hot",
    ),
    np.isclose(loss, -np.log(p[0, 1])) and np.allclose(long.matrix, short.matrix),
)

heading(
    "10.2",
    say("a tied table is used twice and gets both gradients", "共享的表用了两次，两份梯度都归它"),
)
ids, targets, wte = np.array([0, 2, 0]), np.array([2, 1, 2]), np.array([[1.0, 0], [0, 1], [1, 1]])
x, hot = wte[ids], np.eye(3)[ids]
logits = x @ wte.T
dlogits = (softmax_forward(logits, axis=-1)[0] - np.eye(3)[targets]) / 3
formula = ("dlogits = (p - hot)/T", dlogits)
_, [checked] = there_and_back(*pair, (logits, targets), 1.0, formula)
formulas = ("dx = dlogits wte", dlogits @ wte), ("dlogitsᵀ x", dlogits.T @ x)
_, [dx, by_head] = there_and_back(lm_head_forward, lm_head_backward, (x, wte), dlogits, *formulas)
formula = ("one_hotᵀ dx", hot.T @ dx.matrix)
_, [by_lookup] = there_and_back(lookup_forward, lookup_backward, (ids, wte), dx.matrix, formula)
side_by_side(C("wte", wte), C("x = wte[ids]", x), C("logits = x wteᵀ", logits), checked)


def tied(wte: np.ndarray) -> float:
    """L with both uses of the one table."""
    logits, _ = lm_head_forward(lookup_forward(ids, wte)[0], wte)
    return cross_entropy_forward(logits, targets)[0]


both = nudged(say("dwte = both", "dwte = 两份之和"), by_lookup.matrix + by_head.matrix, tied, wte)
side_by_side(dx, by_head, by_lookup, both)
claim(
    say(
        "token 1 was never read; its row learns all the same, as it was scored",
        "token 1 没有读到过，它那一行照样学：它被打过分",
    ),
    not by_lookup.matrix[1].any() and by_head.matrix[1].all(),
)
