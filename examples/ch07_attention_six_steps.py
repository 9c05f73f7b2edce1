"""The six steps of attention by hand, and back again (article 7.3).

Forward: every matrix that the article prints. Backward: the same steps from the last to the first,
each gradient with its formula, held against central differences. Leaves out heads (ch07_heads.py).
"""

from __future__ import annotations

import functools

import numpy as np
from show import claim, heading, matrices, same, say
from toy import CAUSAL, NAMES, NO_BIAS, OWN, ROOT_D, W_K, W_Q, W_V, X, against_torch, compared

from npgpt.ops.linear import linear_backward, linear_forward
from npgpt.ops.mask import mask_backward, mask_forward
from npgpt.ops.scores import scale_backward, scale_forward, scores_backward, scores_forward
from npgpt.ops.softmax import softmax_backward, softmax_forward
from npgpt.ops.weighted_sum import weighted_sum_backward, weighted_sum_forward

heading("7.3", say("three tokens of d = 4, three projections", "三个 token，d = 4，三个投影矩阵"))
matrices(("x", X), rows=NAMES)
matrices(("W_Q", W_Q), ("W_K", W_K), ("W_V", W_V))

heading(
    "7.3 ①",
    say(
        "project: what each token asks (Q), answers to (K), passes on (V)",
        "投影 · project：问题 Q、答案 K、要传递的内容 V",
    ),
)
Q, saved_q = linear_forward(X, W_Q, NO_BIAS)
K, saved_k = linear_forward(X, W_K, NO_BIAS)
V, saved_v = linear_forward(X, W_V, NO_BIAS)
matrices(("Q = x W_Q", Q), ("K = x W_K", K), ("V = x W_V", V), rows=NAMES)
same(Q, [[2, 0, 1, 0], [0, 2, 0, 1], [1, 1, 0, 0]])
same(K, [[1, 0, 2, 0], [0, 1, 0, 2], [1, 1, 1, 1]])

heading(
    "7.3 ② ③ ④ ⑤",
    say(
        "score, scale, mask, softmax: who looks at whom, and how much",
        "打分 · score，缩放 · scale，mask，softmax：该看谁，看多少",
    ),
)
S, saved_scores = scores_forward(Q, K)
scaled, saved_scale = scale_forward(S, divisor=ROOT_D)
masked, saved_mask = mask_forward(scaled, CAUSAL)
P, saved_softmax = softmax_forward(masked, axis=-1)
matrices(("② S = Q Kᵀ", S), ("③ S / √d", scaled), ("④ mask", masked), ("⑤ P", P), rows=NAMES)
same(S, [[4, 0, 3], [0, 4, 3], [1, 1, 2]])
same(scaled, [[2, 0, 1.5], [0, 2, 1.5], [0.5, 0.5, 1]])
same(masked, [[2, -np.inf, -np.inf], [0, 2, -np.inf], [0.5, 0.5, 1]])
same(P, [[1, 0, 0], [0.12, 0.88, 0], [0.27, 0.27, 0.45]])

heading(
    "7.3 ⑥",
    say(
        "weighted sum: t2 gets 0.27 of t0, 0.27 of t1, 0.45 of t2; t0 only itself",
        "加权求和 · weighted sum：t2 得到 0.27 个 t0、0.27 个 t1、0.45 个 t2；t0 只有自己",
    ),
)
out, saved_sum = weighted_sum_forward(P, V)
matrices(("out = P V", out), rows=NAMES)
same(out, [[1, 0, 1, 0], [0.12, 0.88, 0.12, 0.88], [0.73, 0.73, 0.27, 0.27]])

print(
    say(
        """
AND BACK AGAIN. Let L be the sum of out's first column: every token wants more of component 0, so
the gradient that arrives, dout = ∂L/∂out, is 1 there. Below, dA is ∂L/∂A for a matrix A, and ±
its largest distance from central differences: nudge each entry of A up and down, look at L.""",
        """
再倒着走一遍。设 L 为 out 第一列之和：每个 token 都想让第 0 个分量大一些，所以传回来的梯度
dout = ∂L/∂out 在那一列是 1。下面的 dA 就是 ∂L/∂A；± 是它与中心差分的最大差：把 A 的每个数
各加、减一点点，看 L 怎样变。""",
    )
)
dout = np.array([[1.0, 0, 0, 0]] * 3)
forward = {**OWN, "Q": Q, "K": K, "V": V, "S": S, "scaled": scaled, "masked": masked, "P": P}
gradients = functools.partial(compared, forward, dout)

heading(
    say("back through ⑥", "反向 ⑥"),
    say(
        "out = P V, a product: each factor gets dout times the other factor",
        "out = P V 是乘积：每个因子的梯度是 dout 乘另一个因子",
    ),
)
dP, dV = weighted_sum_backward(dout, saved_sum)
gradients(("dout", dout), ("dP = dout Vᵀ", dP), ("dV = Pᵀ dout", dV))

heading(
    say("back through ⑤", "反向 ⑤"),
    say(
        "softmax: a row sums to 1, so its mean gain Σ p dp drops out",
        "softmax：一行的和恒为 1，所以要减去平均 Σ p dp",
    ),
)
dmasked = softmax_backward(dP, saved_softmax)
mean = (P * dP).sum(axis=1, keepdims=True)
gradients(("P", P), ("dP", dP), ("Σ p dp", mean), ("dmasked = P (dP - Σ p dp)", dmasked))
p = P[1, 0] * P[1, 1]
claim(
    say(
        "t0 has one weight, always 1: no gradient; t1 has two, so ± p (1 - p), as in 7.4",
        "t0 只有一个权重，分数再变也是 1：没有梯度；t1 有两个，所以是 ± p (1 - p)，如七.4",
    ),
    np.allclose(dmasked[:2], [[0, 0, 0], [p, -p, 0]], rtol=1e-12, atol=0),
)
claim(
    say("t2 would look away from t1, whose V begins with a 0", "t2 会少看 t1：它的 V 以 0 开头"),
    [*(dmasked[2] < 0)] == [*(V[:, 0] == 0)],
)

heading(
    say("back through ④ ③", "反向 ④ ③"),
    say("masked numbers get nothing; the rest is divided", "被 mask 的数没有梯度；其余再除一次"),
)
dscaled = mask_backward(dmasked, saved_mask)
dS = scale_backward(dscaled, saved_scale)
gradients(("dscaled = dmasked [j ≤ i]", dscaled), ("dS = dscaled / √d", dS))

heading(
    say("back through ②", "反向 ②"),
    say(
        "S = Q Kᵀ: q_i met k_j in S_ij, so each gets dS_ij times the other",
        "S = Q Kᵀ：q_i 与 k_j 在 S_ij 相遇，各得 dS_ij 乘对方",
    ),
)
dQ, dK = scores_backward(dS, saved_scores)
gradients(("dQ = dS K", dQ), ("dK = dSᵀ Q", dK))

heading(
    say("back through ①", "反向 ①"),
    say(
        "Q = x W_Q, K = x W_K, V = x W_V: the matrices, and x, read three times",
        "Q = x W_Q、K = x W_K、V = x W_V：三个矩阵，以及被读了三次的 x",
    ),
)
dx_q, dW_Q, _ = linear_backward(dQ, saved_q)
dx_k, dW_K, _ = linear_backward(dK, saved_k)
dx_v, dW_V, _ = linear_backward(dV, saved_v)
gradients(("dW_Q = xᵀ dQ", dW_Q), ("dW_K = xᵀ dK", dW_K), ("dW_V = xᵀ dV", dW_V), rows=None)
gradients(("dQ W_Qᵀ", dx_q), ("dK W_Kᵀ", dx_k), ("dV W_Vᵀ", dx_v))
gradients(("dx = dQ W_Qᵀ + dK W_Kᵀ + dV W_Vᵀ", dx_q + dx_k + dx_v))

heading(
    "7.3",
    say(
        "the same from PyTorch's scaled_dot_product_attention and its autograd",
        "与 PyTorch 的 scaled_dot_product_attention 及其自动求导对拍",
    ),
)
against_torch(dout, dx_q + dx_k + dx_v, dW_Q, dW_K, dW_V)
