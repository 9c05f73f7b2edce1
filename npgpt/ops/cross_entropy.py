"""Cross-entropy: the loss of predicting the next token, all T of them in one pass (article 7.5).

Targets are already shifted: targets[t] is the token that should follow position t. Nothing is
shifted here.
"""

from __future__ import annotations

import numpy as np

IGNORE_INDEX = -100

# logits, their maximum [..., 1], Σ exp(logits - maximum) [...], targets [...], ignore_index
Saved = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]


def cross_entropy_forward(
    logits: np.ndarray, targets: np.ndarray, *, ignore_index: int = IGNORE_INDEX
) -> tuple[np.floating, Saved]:
    """Mean negative log-probability, in nats, of the targets that are not ignored.

        loss = (1/N) Σ_t ( log Σ_v exp(logits[t, v]) - logits[t, targets[t]] )

    N counts the targets that are not `ignore_index`; where there is none the loss is 0. The maximum
    is subtracted from all logits first: it cancels, exp cannot overflow, and logits far from zero
    cost no digits.

    Args:
        logits: [..., V].
        targets: [...] integers in 0..V-1, or ignore_index.

    Returns:
        loss, a scalar of the logits' dtype, and what backward reads.

    Raises:
        ValueError: targets of the wrong shape or dtype, or outside 0..V-1.
    """
    check_targets(logits.shape, targets, ignore_index)
    logits_max = logits.max(axis=-1, keepdims=True)
    exps = logits - logits_max
    total = np.exp(exps, out=exps).sum(axis=-1)  # [...]
    keep = targets != ignore_index
    picked = np.take_along_axis(logits, np.where(keep, targets, 0)[..., None], axis=-1)
    surprise = np.log(total) - (picked - logits_max)[..., 0]  # [...]
    loss = np.where(keep, surprise, logits.dtype.type(0)).sum() / max(int(keep.sum()), 1)
    return loss, (logits, logits_max, total, targets, ignore_index)


def cross_entropy_backward(dloss: float, saved: Saved) -> np.ndarray:
    """Gradient of the logits.

    The derivative of log Σ exp is the softmax, that of the picked logit is 1:

        dlogits[t, v] = dloss / N (softmax(logits[t])[v] - [v = targets[t]]),       0 for ignored t

    Args:
        dloss: gradient of the loss, usually 1.0.

    Returns:
        dlogits [..., V].
    """
    logits, logits_max, total, targets, ignore_index = saved
    keep = targets != ignore_index
    dlogits = np.subtract(logits, logits_max, order="C")  # so that rows is a view
    np.exp(dlogits, out=dlogits)
    dlogits /= total[..., None]  # softmax(logits)
    rows = dlogits.reshape(-1, dlogits.shape[-1])  # [N_all, V]
    rows[np.arange(len(rows)), np.where(keep, targets, 0).reshape(-1)] -= 1
    scale = keep * (float(dloss) / max(int(keep.sum()), 1))  # dloss / N, 0 for ignored t
    dlogits *= scale.astype(dlogits.dtype)[..., None]
    return dlogits


def check_targets(shape: tuple[int, ...], targets: np.ndarray, ignore_index: int) -> None:
    """Raise ValueError unless targets fit logits of this shape [..., V]."""
    V = shape[-1]
    if targets.shape != shape[:-1]:
        raise ValueError(
            f"targets have shape {list(targets.shape)}, but logits {list(shape)} "
            f"want {list(shape[:-1])}."
        )
    if not np.issubdtype(targets.dtype, np.integer):
        raise ValueError(f"targets must be integers, but have dtype {targets.dtype}.")
    wrong = (targets != ignore_index) & ((targets < 0) | (targets >= V))
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"target {targets[where]} at index {list(where)} is neither in 0..{V - 1} "
            f"nor {ignore_index}."
        )
