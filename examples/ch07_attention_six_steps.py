"""The six steps of attention by hand, and back again (article 7.3).

Forward: every matrix that the article prints. Backward: the same steps from the last to the first,
each gradient with its formula, held against central differences. Leaves out heads (ch07_heads.py).
"""

from __future__ import annotations

import numpy as np
from show import heading, matrices, same
from toy import CAUSAL, NAMES, NO_BIAS, OWN, ROOT_D, W_K, W_Q, W_V, X, against_torch, by_nudging

from npgpt.ops.linear import linear_backward, linear_forward
from npgpt.ops.mask import mask_backward, mask_forward
from npgpt.ops.scores import scale_backward, scale_forward, scores_backward, scores_forward
from npgpt.ops.softmax import softmax_backward, softmax_forward
from npgpt.ops.weighted_sum import weighted_sum_backward, weighted_sum_forward

heading("7.3", "three tokens of d = 4 numbers, three projections")
matrices(("x", X), rows=NAMES)
matrices(("W_Q", W_Q), ("W_K", W_K), ("W_V", W_V))

heading("7.3 ①", "project: what each token asks (Q), answers to (K), passes on (V)")
Q, saved_q = linear_forward(X, W_Q, NO_BIAS)
K, saved_k = linear_forward(X, W_K, NO_BIAS)
V, saved_v = linear_forward(X, W_V, NO_BIAS)
matrices(("Q = x W_Q", Q), ("K = x W_K", K), ("V = x W_V", V), rows=NAMES)
same(Q, [[2, 0, 1, 0], [0, 2, 0, 1], [1, 1, 0, 0]])
same(K, [[1, 0, 2, 0], [0, 1, 0, 2], [1, 1, 1, 1]])

heading("7.3 ② ③ ④ ⑤", "score, scale, mask, softmax: who looks at whom, and how much")
S, saved_scores = scores_forward(Q, K)
scaled, saved_scale = scale_forward(S, divisor=ROOT_D)
masked, saved_mask = mask_forward(scaled, CAUSAL)
P, saved_softmax = softmax_forward(masked, axis=-1)
matrices(("② S = Q Kᵀ", S), ("③ S / √d", scaled), ("④ mask", masked), ("⑤ P", P), rows=NAMES)
same(S, [[4, 0, 3], [0, 4, 3], [1, 1, 2]])
same(scaled, [[2, 0, 1.5], [0, 2, 1.5], [0.5, 0.5, 1]])
same(masked, [[2, -np.inf, -np.inf], [0, 2, -np.inf], [0.5, 0.5, 1]])
same(P, [[1, 0, 0], [0.12, 0.88, 0], [0.27, 0.27, 0.45]])

heading("7.3 ⑥", "weighted sum: t2 gets 0.27 of t0, 0.27 of t1, 0.45 of t2; t0 only itself")
out, saved_sum = weighted_sum_forward(P, V)
matrices(("out = P V", out), rows=NAMES)
same(out, [[1, 0, 1, 0], [0.12, 0.88, 0.12, 0.88], [0.73, 0.73, 0.27, 0.27]])

print("""
AND BACK AGAIN. Let L be the sum of out's first column: every token wants more of component 0, so
the gradient that arrives, dout = ∂L/∂out, is 1 there. Below, dA is ∂L/∂A for a matrix A, and ±
its largest distance from central differences: nudge each entry of A up and down, look at L.""")
dout = np.array([[1.0, 0, 0, 0]] * 3)
forward = {**OWN, "Q": Q, "K": K, "V": V, "S": S, "scaled": scaled, "masked": masked, "P": P}


def gradients(*columns: tuple[str, np.ndarray], rows: list[str] | None = NAMES) -> None:
    """Print matrices; those named "dA = …" are held against central differences of L."""
    feet = []
    for title, gradient in columns:
        name = title.partition(" = ")[0].removeprefix("d")
        if " = " not in title:
            feet.append("")
            continue
        error = np.abs(gradient - by_nudging(name, forward[name], dout)).max()
        if not error < 1e-9:
            raise AssertionError(f"d{name} is {error:.1e} away from central differences")
        feet.append(f"± {error:.0e}")
    matrices(*columns, rows=rows, digits=3, feet=feet)


heading("back through ⑥", "out = P V, a product: each factor gets dout times the other factor")
dP, dV = weighted_sum_backward(dout, saved_sum)
gradients(("dout", dout), ("dP = dout Vᵀ", dP), ("dV = Pᵀ dout", dV))

heading("back through ⑤", "softmax: a row sums to 1, so its mean gain Σ p dp drops out")
dmasked = softmax_backward(dP, saved_softmax)
mean = (P * dP).sum(axis=1, keepdims=True)
gradients(("P", P), ("dP", dP), ("Σ p dp", mean), ("dmasked = P (dP - Σ p dp)", dmasked))
print(
    "  t0 has one weight, 1 whatever its score: no gradient. t1 has two, so ± p (1 - p), as in 7.4."
)
print("  t2 would look away from t1, the only one with a 0 in component 0 of V.")

heading("back through ④ ③", "what the mask replaced gets nothing; then divide, as on the way up")
dscaled = mask_backward(dmasked, saved_mask)
dS = scale_backward(dscaled, saved_scale)
gradients(("dscaled = dmasked where j ≤ i", dscaled), ("dS = dscaled / √d", dS))

heading("back through ②", "S = Q Kᵀ: q_i met k_j in S_ij, so each gets dS_ij times the other")
dQ, dK = scores_backward(dS, saved_scores)
gradients(("dQ = dS K", dQ), ("dK = dSᵀ Q", dK))

heading("back through ①", "Q = x W_Q, K = x W_K, V = x W_V: the matrices, and x, read three times")
dx_q, dW_Q, _ = linear_backward(dQ, saved_q)
dx_k, dW_K, _ = linear_backward(dK, saved_k)
dx_v, dW_V, _ = linear_backward(dV, saved_v)
gradients(("dW_Q = xᵀ dQ", dW_Q), ("dW_K = xᵀ dK", dW_K), ("dW_V = xᵀ dV", dW_V), rows=None)
gradients(("dQ W_Qᵀ", dx_q), ("dK W_Kᵀ", dx_k), ("dV W_Vᵀ", dx_v))
gradients(("dx = dQ W_Qᵀ + dK W_Kᵀ + dV W_Vᵀ", dx_q + dx_k + dx_v))

heading("7.3", "the same from PyTorch's scaled_dot_product_attention and its autograd")
against_torch(dout, dx_q + dx_k + dx_v, dW_Q, dW_K, dW_V)
