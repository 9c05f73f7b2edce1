"""lm_head and cross-entropy in one, for training: the logits of all tokens are never there at once.

At GPT-2's size the logits of 1,024 tokens take 206 MB, their gradient as much again. Whoever only
wants loss and gradients needs neither: some rows of logits become their gradient in place, are
multiplied on, and make room for the next rows.

The two steps one by one are in `lm_head.py` and `cross_entropy.py`.
"""

from __future__ import annotations

import numpy as np

from npgpt.ops.cross_entropy import IGNORE_INDEX, check_targets

ROWS = 512  # tokens at a time; each block of them adds to the whole table's gradient

Saved = tuple[np.ndarray, np.ndarray]  # gradients of x and of the table, for dloss = 1


def lm_head_loss_forward(
    x: np.ndarray, targets: np.ndarray, table: np.ndarray, *, ignore_index: int = IGNORE_INDEX
) -> tuple[np.floating, Saved]:
    """Mean loss in nats of x as a prediction of the targets. Article chapter 10, 7.5.

        loss = cross_entropy(x tableᵀ, targets)

    The gradients are made on the way, as long as a row's logits are at hand:

        dlogits[t, v] = (softmax(logits[t])[v] - [v = targets[t]]) / N,     0 for ignored t
        dx = dlogits table          dtable = dlogitsᵀ x

    Args:
        x: [..., d].
        targets: [...] integers in 0..V-1, or ignore_index.
        table: [V, d].

    Returns:
        loss, a scalar of x's dtype, and what backward reads.

    Raises:
        ValueError: targets of the wrong shape or dtype, or outside 0..V-1.
    """
    V, d = table.shape
    check_targets((*x.shape[:-1], V), targets, ignore_index)
    rows, row_targets = x.reshape(-1, d), targets.reshape(-1)
    dx, dtable = np.empty_like(rows), np.empty_like(table, order="C")
    count = max(int((targets != ignore_index).sum()), 1)
    surprise = np.zeros(len(rows), x.dtype)
    room = np.empty((min(ROWS, len(rows)), V), x.dtype)
    for start in range(0, len(rows), ROWS):
        block = slice(start, start + ROWS)
        logits = np.matmul(rows[block], table.T, out=room[: len(rows[block])])  # [ROWS, V]
        for t, target in enumerate(row_targets[block]):
            if target == ignore_index:
                logits[t] = 0
            else:
                surprise[start + t] = _to_gradient(logits[t], target, count)
        np.matmul(logits, table, out=dx[block])
        if start == 0:
            np.matmul(logits.T, rows[block], out=dtable)
        else:
            dtable += logits.T @ rows[block]
    return surprise.sum() / count, (dx.reshape(x.shape), dtable)


def lm_head_loss_backward(dloss: float, saved: Saved) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of x and of the table; targets have none.

    Args:
        dloss: gradient of the loss, usually 1.0.

    Returns:
        dx [..., d], dtable [V, d].
    """
    dx, dtable = saved
    return (dx, dtable) if dloss == 1 else (dx * float(dloss), dtable * float(dloss))


def _to_gradient(logits: np.ndarray, target: int, count: int) -> np.floating:
    """Turn one row of logits [V] into its gradient, in place; returns its loss."""
    logits -= logits.max()
    picked = logits[target]
    np.exp(logits, out=logits)
    total = logits.sum()
    logits *= 1 / (float(total) * count)
    logits[target] -= 1 / count
    return np.log(total) - picked
