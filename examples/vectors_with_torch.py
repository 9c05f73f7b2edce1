"""torch's own functions against the conformance vectors, forward and backward, where torch has one.

npgpt vectors --out vectors && python examples/vectors_with_torch.py vectors
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    turned = torch.complex(*x.chunk(2, -1)) * torch.complex(cos, sin)
    return torch.cat([turned.real, turned.imag], -1)


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float = 0.0, **ignore: int) -> Tensor:
    flat = logits.flatten(0, -2), targets.flatten()  # torch's mean of no targets is NaN
    total = F.cross_entropy(*flat, label_smoothing=smoothing, reduction="sum", **ignore)
    return total / (targets != ignore["ignore_index"]).sum().clamp(min=1)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, divisor: float) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask, scale=1 / divisor)


def load_balance(probs: Tensor, chosen: Tensor, counted: Tensor | None = None) -> Tensor:
    rows = slice(None) if counted is None else counted.expand(probs.shape[:-1])
    share, mean = (x[rows].flatten(0, -2).mean(0) for x in (chosen.to(probs.dtype), probs))
    return len(mean) * share @ mean


FUNCTIONS = {
    "lookup": lambda ids, table: F.embedding(ids, table),
    "position": lambda x, positions, table: x + F.embedding(positions, table),
    "rope": rope,
    "linear": lambda x, W, b: F.linear(x, W.T, b),
    "project": lambda x, W: F.linear(x, W.T),
    "split_heads": lambda x, n_head: x.unflatten(-1, (n_head, -1)).transpose(-3, -2),
    "merge_heads": lambda x: x.transpose(-3, -2).flatten(-2),
    "group_queries": lambda q, n_kv_head: q.unflatten(-3, (n_kv_head, -1)),
    "ungroup_queries": lambda x: x.flatten(-4, -3),
    "share_heads": lambda x, n_group: torch.stack([x] * n_group, -3),
    "scores": lambda q, k: torch.matmul(q, k.mT),
    "scale": lambda scores, divisor: torch.div(scores, divisor),
    "mask": lambda scores, mask: scores.masked_fill(~mask, -torch.inf),
    "softmax": lambda x, axis: torch._safe_softmax(x, axis),  # zeros in a row of nothing but -∞
    "weighted_sum": lambda probs, v: torch.matmul(probs, v),
    "flash_attention": attention,
    "attention": attention,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_erf": lambda x: F.gelu(x),
    "relu": lambda x: F.relu(x),
    "silu": lambda x: F.silu(x),
    "tanh": lambda x: torch.tanh(x),
    "layer_norm": lambda x, weight, bias, eps: F.layer_norm(x, weight.shape, weight, bias, eps),
    "rms_norm": lambda x, weight, eps: F.rms_norm(x, weight.shape, weight, eps),
    "top_k": lambda probs, k: torch.zeros_like(probs).scatter(-1, *reversed(probs.topk(k))),
    "renormalise": lambda weights: weights / weights.sum(-1, keepdim=True),
    "load_balance": load_balance,
    "lm_head": lambda x, table: F.linear(x, table),
    "cross_entropy": cross_entropy,
    "label_smoothing": cross_entropy,
    "lm_head_loss": lambda x, table, **rest: cross_entropy(F.linear(x, table), **rest),
    "dropout": lambda x, keep, p: x * keep / (1 - p),
}


def share_used(case: dict, exact: dict[str, Tensor], dtype: torch.dtype, finer: float) -> float:
    """How far torch is off in the worst array, in tolerances; NaN where it computes NaN."""
    arrays = {k: a.to(dtype, copy=True) if a.is_floating_point() else a for k, a in exact.items()}
    inputs = {name: arrays[name] for name in case["inputs"]}
    leaves = {f"d{name}": x.requires_grad_() for name, x in inputs.items() if f"d{name}" in exact}
    y = FUNCTIONS[case["operation"]](**inputs, **case["settings"])
    (dy,) = case["upstream"]
    grads = torch.autograd.grad(y, list(leaves.values()), arrays[dy])
    shares = []
    for name, got in {dy[1:]: y.detach(), **dict(zip(leaves, grads, strict=True))}.items():
        apart = torch.where(got == exact[name], 0, (got.double() - exact[name]).abs())  # -∞ - -∞
        shares.append(apart.max() / (finer * case["tolerance"][name]))
    return float(torch.stack(shares).max())


def main(folder: Path) -> int:
    index = json.loads((folder / "index.json").read_text("utf-8"))
    worst: dict[str, list[list[float]]] = defaultdict(list)
    for case in index["cases"]:
        if case["operation"] in FUNCTIONS:
            exact = load_file(folder / case["file"])
            kinds = (torch.float32, 1.0), (torch.float64, index["float64"])
            worst[case["operation"]].append([share_used(case, exact, *kind) for kind in kinds])
    print(f"{'':16} cases  float32  float64   of the tolerance used")
    for operation, shares in worst.items():
        float32, float64 = torch.tensor(shares).amax(0)
        print(f"{operation:16} {len(shares):5}  {float32:7.4f}  {float64:7.4f}")
    return 0 if all(share <= 1 for rows in worst.values() for row in rows for share in row) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
