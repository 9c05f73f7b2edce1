"""Position embedding: tell the model where each token stands (article chapter 6).

Attention alone treats its input as a set. GPT-2 adds a learned row per position (6.2, method 1).
"""

from __future__ import annotations

import numpy as np

from npgpt.ops import lookup

Saved = tuple[tuple[int, ...], lookup.Saved]  # shape of x, what the lookup saved


def position_forward(
    x: np.ndarray, positions: np.ndarray, table: np.ndarray
) -> tuple[np.ndarray, Saved]:
    """Add row `positions[t]` of a learned table to the vector of token t. Article 6.2, method 1.

        y[..., t, :] = x[..., t, :] + table[positions[..., t], :]

    Args:
        x: [..., T, d].
        positions: [T] or [..., T] integers in 0..n_positions-1.
        table: [n_positions, d].

    Returns:
        y [..., T, d], and what backward reads.

    Raises:
        ValueError: a position lies outside the table; the context length is written into its rows.
    """
    lookup.check_rows(positions, table, "position")
    rows, saved_lookup = lookup.lookup_forward(positions, table)
    return x + rows, (x.shape, saved_lookup)


def position_backward(dy: np.ndarray, saved: Saved) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of x and of the table.

        dx = dy         dtable[p] = Σ dy[..., t, :] over all (..., t) at position p

    A sum passes its gradient on unchanged; where one row of positions served a whole batch, the
    batch adds up.

    Args:
        dy: [..., T, d].

    Returns:
        dx [..., T, d], dtable [n_positions, d].
    """
    x_shape, (positions, table_shape) = saved
    batched = np.broadcast_to(positions, x_shape[:-1])  # [..., T]
    return dy, lookup.lookup_backward(dy, (batched, table_shape))
