"""The toy model of article 7.3: three tokens of four numbers, small integers for weights."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
from show import matrices, say

from npgpt.cli import left
from npgpt.ops.linear import linear_forward
from npgpt.ops.mask import causal_mask, mask_forward
from npgpt.ops.scores import scale_forward, scores_forward
from npgpt.ops.softmax import softmax_forward
from npgpt.ops.weighted_sum import weighted_sum_forward

NAMES = ["t0", "t1", "t2"]
X = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]], float)
W_Q = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]], float)
W_K = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]], float)
W_V = np.eye(4)
OWN = {"x": X, "W_Q": W_Q, "W_K": W_K, "W_V": W_V}
NO_BIAS = np.zeros(4)
ROOT_D = math.sqrt(4)
CAUSAL, EVERYTHING = causal_mask(3, 3), np.ones((3, 3), bool)


def six_steps(mask: np.ndarray = CAUSAL, **given: np.ndarray) -> np.ndarray:
    """All six steps: out [3, 4].

    `given` may hold x, W_Q, W_K, W_V, Q, K, V, S, scaled, masked and P: each takes the place of the
    toy model's own, or of what the steps before it would have made.
    """
    at = {**OWN, **given}
    for name in ("Q", "K", "V"):
        at.setdefault(name, linear_forward(at["x"], at["W_" + name], NO_BIAS)[0])
    at.setdefault("S", scores_forward(at["Q"], at["K"])[0])
    at.setdefault("scaled", scale_forward(at["S"], divisor=ROOT_D)[0])
    at.setdefault("masked", mask_forward(at["scaled"], mask)[0])
    at.setdefault("P", softmax_forward(at["masked"], axis=-1)[0])
    return weighted_sum_forward(at["P"], at["V"])[0]


def by_nudging(name: str, value: np.ndarray, dout: np.ndarray) -> np.ndarray:
    """∂L/∂value for L = Σ dout · out, by central differences: nudge each number up and down.

    `name` is one of those that `six_steps` may be given.
    """
    gradient, step = np.zeros_like(value), 1e-5
    for where in np.ndindex(value.shape):
        nudge = np.zeros_like(value)
        nudge[where] = step
        up, down = ((six_steps(**{name: x}) * dout).sum() for x in (value + nudge, value - nudge))
        gradient[where] = (up - down) / (2 * step)
    return gradient


def compared(
    forward: dict[str, np.ndarray],
    dout: np.ndarray,
    *columns: tuple[str, np.ndarray],
    rows: list[str] | None = NAMES,
) -> None:
    """Print matrices; those named "dA = …" are held against central differences at `forward`."""
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


def against_torch(dout: np.ndarray, *gradients: np.ndarray) -> None:
    """Print how far PyTorch is away: out in float32, the gradients of `OWN` in float64."""
    if importlib.util.find_spec("torch") is None:
        print(
            say(
                "  PyTorch is not installed; with it (pip install torch) both are compared here.",
                "  没有装 PyTorch；装上它（pip install torch），这里就与它对拍。",
            )
        )
        return
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    def from_torch(dtype: torch.dtype) -> tuple[torch.Tensor, list[torch.Tensor]]:
        leaves = [torch.tensor(A, dtype=dtype, requires_grad=True) for A in OWN.values()]
        q, k, v = ((leaves[0] @ W)[None, None] for W in leaves[1:])
        return scaled_dot_product_attention(q, k, v, is_causal=True)[0, 0], leaves

    out, _ = from_torch(torch.float32)
    ours = six_steps(**{name: A.astype(np.float32) for name, A in OWN.items()})
    difference = np.abs(ours - out.detach().numpy()).max()
    largest = say("largest difference", "最大差")
    article = say("the article sees 5.96e-08", "文章里是 5.96e-08")
    print(f"  {left('out, float32', 20)}  {largest} {difference:.2e}   {article}")

    out, leaves = from_torch(torch.float64)
    out.backward(torch.tensor(dout))
    pairs = zip(leaves, gradients, strict=True)
    apart = max(np.abs(leaf.grad.numpy() - gradient).max() for leaf, gradient in pairs)
    what = left(say("gradients, float64", "梯度, float64"), 20)
    print(f"  {what}  {largest} {apart:.2e}   x, W_Q, W_K, W_V")
    if difference > 1.2e-7 or apart > 1e-15:
        raise AssertionError("PyTorch is further away than rounding explains")
