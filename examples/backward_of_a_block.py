"""The whole way back through a block of width 2, from the loss to x (article 11.1).

Each formula once, in plain NumPy, in the order in which a backward pass takes them; then npgpt's
`block_backward` on the same block, and one step of gradient descent. The operations one by one are
in backward_by_hand.py. Leaves out embedding, ln_f and heads.
"""

from __future__ import annotations

import numpy as np
from block_of_two import (
    EPS,
    MATRICES,
    NAMES,
    ROOT_D,
    TABLE,
    TARGETS,
    WEIGHTS,
    X,
    by_npgpt,
    forward,
    named_as_gpt2,
    print_forward,
)
from nudged import LEGEND, Column, nudged, side_by_side
from show import claim, heading, say

C = Column
at, grads = forward(), {}
n_1, Q, K, V, P, context = (at[name] for name in ("n_1", "Q", "K", "V", "P", "context"))
h, n_2, wide, bent, y, logits = (at[name] for name in ("h", "n_2", "wide", "bent", "y", "logits"))
W_Q, W_K, W_V, W_O, W_1, W_2 = MATRICES.values()


def back(title: str, gradient: np.ndarray) -> Column:
    """A gradient "dA = …": kept in `grads`, and checked by nudging A inside the block."""
    name = title.partition(" ")[0].removeprefix("d")
    grads[name] = gradient
    return nudged(title, gradient, lambda moved: forward(**{name: moved})["L"], at[name])


def norm_back(dn: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of LayerNorm with γ = 1: the gradient of x, and x̂."""
    rstd = 1 / np.sqrt(x.var(axis=1, keepdims=True) + EPS)
    x_hat = (x - x.mean(axis=1, keepdims=True)) * rstd
    along = (dn * x_hat).mean(axis=1, keepdims=True)
    return rstd * (dn - dn.mean(axis=1, keepdims=True) - x_hat * along), x_hat


print(LEGEND)
heading("11.1", say("forward", "前向") + ": h = x + attn(ln_1(x)), y = h + mlp(ln_2(h))")
print_forward(at)

heading("10", say("the loss: p - hot for each of T tokens", "损失：T 个 token 各得 p - hot"))
p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
hot = np.eye(3)[TARGETS]
dlogits = (p - hot) / len(X)
dy = dlogits @ TABLE
given = C("logits = y tableᵀ", logits), C("p", p), C("hot", hot)
formulas = back("dlogits = (p - hot)/T", dlogits), back("dy = dlogits table", dy)
side_by_side(*given, rows=NAMES)
side_by_side(*formulas, rows=NAMES)

heading(
    "8.1", say("y = h + mlp: back through the FFN, dmlp = dy", "y = h + mlp：穿过 FFN，dmlp = dy")
)
c = np.sqrt(2 / np.pi)
tanh_u, du = np.tanh(c * (wide + 0.044715 * wide**3)), c * (1 + 3 * 0.044715 * wide**2)
dbent, dW_2, db_2 = dy @ W_2.T, bent.T @ dy, dy.sum(axis=0)
dwide = dbent * ((1 + tanh_u) / 2 + wide / 2 * (1 - tanh_u**2) * du)
dn_2, dW_1, db_1 = dwide @ W_1.T, n_2.T @ dwide, dwide.sum(axis=0)
formulas = back("dbent = dmlp W_2ᵀ", dbent), back("dwide = dbent GELU'", dwide)
side_by_side(*formulas, back("dn_2 = dwide W_1ᵀ", dn_2), rows=NAMES)
formulas = back("dW_2 = bentᵀ dmlp", dW_2), back("db_2 = Σ dmlp", db_2)
side_by_side(*formulas, back("dW_1 = n_2ᵀ dwide", dW_1), back("db_1 = Σ dwide", db_1))

heading("9", say("back through ln_2; what came straight on is added", "穿过 ln_2，加上直通的那份"))
through, x_hat = norm_back(dn_2, h)
dgamma, dbeta, dh = (dn_2 * x_hat).sum(axis=0), dn_2.sum(axis=0), dy + through
ways = C("dy", dy), C(say("through ln_2", "经过 ln_2"), through)
side_by_side(*ways, back(say("dh = both", "dh = 两份之和"), dh), rows=NAMES)
side_by_side(back("dγ_2 = Σ dn_2 x̂", dgamma), back("dβ_2 = Σ dn_2", dbeta))

heading(
    "7.3",
    say(
        "h = x + attn: the six steps from below, dattn = dh", "h = x + attn：倒着走六步，dattn = dh"
    ),
)
dcontext, dW_O, db_O = dh @ W_O.T, context.T @ dh, dh.sum(axis=0)
dP, dV = dcontext @ V.T, P.T @ dcontext
dS = P * (dP - (P * dP).sum(axis=1, keepdims=True)) / ROOT_D
dQ, dK = dS @ K, dS.T @ Q
formulas = back("dcontext = dattn W_Oᵀ", dcontext), back("dW_O = contextᵀ dattn", dW_O)
side_by_side(*formulas, back("db_O = Σ dattn", db_O))
formulas = back("dP = dcontext Vᵀ", dP), back("dV = Pᵀ dcontext", dV)
side_by_side(*formulas, back("dS = P (dP - Σ P dP)/√2", dS), rows=NAMES)
side_by_side(back("dQ = dS K", dQ), back("dK = dSᵀ Q", dK), rows=NAMES)
of_qkv = {"Q": dQ, "K": dK, "V": dV}.items()
side_by_side(*(back(f"dW_{name} = n_1ᵀ d{name}", n_1.T @ dA) for name, dA in of_qkv))
side_by_side(*(back(f"db_{name} = Σ d{name}", dA.sum(axis=0)) for name, dA in of_qkv))
claim(
    say(
        "db_K = 0: b_K shifts a row's scores alike, softmax does not see it",
        "db_K = 0：b_K 让一行分数一起平移，softmax 看不出来",
    ),
    np.allclose(grads["b_K"], 0, atol=1e-14),
)

heading("9", say("back through ln_1 to the bottom", "穿过 ln_1，到底了"))
dn_1 = dQ @ W_Q.T + dK @ W_K.T + dV @ W_V.T
through, x_hat = norm_back(dn_1, X)
dgamma, dbeta, dx = (dn_1 * x_hat).sum(axis=0), dn_1.sum(axis=0), dh + through
side_by_side(back("dn_1 = dQ W_Qᵀ + dK W_Kᵀ + dV W_Vᵀ", dn_1), rows=NAMES)
ways = C("dh", dh), C(say("through ln_1", "经过 ln_1"), through)
side_by_side(*ways, back(say("dx = both", "dx = 两份之和"), dx), rows=NAMES)
side_by_side(back("dγ_1 = Σ dn_1 x̂", dgamma), back("dβ_1 = Σ dn_1", dbeta))

heading(
    "11.1", say("npgpt's own block, and one step downhill", "npgpt 自己的 block，再沿梯度走一步")
)
npgpt_y, npgpt_dx, npgpt_grads = by_npgpt(dy)
ours = {"y": y, "dx": dx, **named_as_gpt2(grads)}
theirs = {"y": npgpt_y, "dx": npgpt_dx, **npgpt_grads}
apart = max(np.abs(ours[name] - theirs[name]).max() for name in ours.keys() | theirs.keys())
what = f"block_forward, block_backward: y, dx, {len(npgpt_grads)} "
claim(what + say(f"gradients, {apart:.0e} apart", f"个梯度，相差 {apart:.0e}"), apart < 1e-14)
step, L = 0.01, at["L"]
lower = forward(**{name: WEIGHTS[name] - step * grads[name] for name in WEIGHTS})["L"]
expected = -step * sum((grads[name] ** 2).sum() for name in WEIGHTS)
claim(
    say(
        f"weights - {step} gradients: L {L:.3f} -> {lower:.3f}; foretold {expected:+.3f}",
        f"权重 - {step} 梯度：L {L:.3f} -> {lower:.3f}；按梯度预计 {expected:+.3f}",
    ),
    np.isclose(lower - L, expected, rtol=0.1),
)
