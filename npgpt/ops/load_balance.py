"""The load-balancing loss: a router that sends all tokens to few experts pays for it (8.3)."""

from __future__ import annotations

import numpy as np

# times chosen [E], which tokens count (bool, like probs without E), how many do
Saved = tuple[np.ndarray, np.ndarray, int]


def load_balance_forward(
    probs: np.ndarray, chosen: np.ndarray, *, counted: np.ndarray | None = None
) -> tuple[np.floating, Saved]:
    """How unequal the experts' shares of the work are: k if equal, at most E.

        loss = E Σ_e f_e P_e        f_e: choices of expert e per token; P_e: mean of probs_e

    From the Switch Transformer, for k choices a token as in Mixtral. All leading axes are tokens;
    with an axis of layers, f and P are means over the layers, too.

    Args:
        probs: [..., E], the router's softmax before the choice.
        chosen: bool [..., E], k in each row.
        counted: bool, broadcast against [...]: False for padding, which does not count; None: all.

    Returns:
        loss, a scalar of the probs' dtype, and what backward reads.
    """
    E = probs.shape[-1]
    counts = np.broadcast_to(True if counted is None else counted, probs.shape[:-1])
    n = max(int(counts.sum()), 1)
    times = chosen[counts].sum(axis=0).astype(probs.dtype)  # n f
    loss = (times * probs[counts].sum(axis=0)).sum() * (E / n**2)
    return loss, (times, counts, n)


def load_balance_backward(dloss: float, saved: Saved) -> np.ndarray:
    """Gradient of probs.

    f counts choices, which a small step does not change (see `top_k_backward`): it gets nothing.
    P_e is a mean over the n tokens that count, so each of them gets

        dprobs_e = dloss E f_e / n

    and is pushed away from the experts that are chosen often.

    Args:
        dloss: gradient of the loss.

    Returns:
        dprobs [..., E].
    """
    times, counts, n = saved
    return counts[..., None] * (times * (float(dloss) * len(times) / n**2))
