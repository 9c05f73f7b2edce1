"""lm_head: turn each vector into a score for every token of the vocabulary (article chapter 10).

The table is [V, d], stored like the token embedding: GPT-2 uses that very table (tied weights,
10.2).
"""

from __future__ import annotations

import numpy as np

from npgpt.ops.few_rows import times_table

Saved = tuple[np.ndarray, np.ndarray]  # x, table


def lm_head_forward(x: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, Saved]:
    """Score every token: the inner product of x with each row of the table. Article 10.1.

        logits[..., v] = x[..., :] · table[v, :]            logits = x tableᵀ

    Args:
        x: [..., d].
        table: [V, d].

    Returns:
        logits [..., V], and what backward reads.
    """
    V, d = table.shape
    logits = times_table(x.reshape(-1, d), table)
    return logits.reshape(*x.shape[:-1], V), (x, table)


def lm_head_backward(dlogits: np.ndarray, saved: Saved) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of x and of the table.

        dx = dlogits table          dtable = dlogitsᵀ x (summed over all rows)

    With tied weights dtable is one of two contributions; the other comes from the lookup (10.2).

    Args:
        dlogits: [..., V].

    Returns:
        dx [..., d], dtable [V, d].
    """
    x, table = saved
    V, d = table.shape
    drows = dlogits.reshape(-1, V)
    return (drows @ table).reshape(x.shape), drows.T @ x.reshape(-1, d)
