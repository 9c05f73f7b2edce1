"""Masks: who may look at whom (article 7.3 step 4, 7.5). True = may attend."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def causal_mask(T: int, S: int, window: int | None = None) -> np.ndarray:
    """Each query sees the keys up to its own position. Article 7.5.

        mask[i, j] = j <= i + S - T, so it depends on j - i only

    Counted from the bottom-right corner, because the T queries are the last T of the S positions: T
    = S in training and prefill, T = 1 in decoding. With a `window` it sees no more than so many
    keys, itself included.

    Returns:
        bool [T, S], read-only; T + S bytes of memory, as all its rows are cut from one.
    """
    distance = np.arange(-T, S) - (S - T)  # of every j - i
    seen = distance <= 0
    if window is not None:
        seen &= distance > -window
    return np.lib.stride_tricks.sliding_window_view(seen, S)[:0:-1]  # row i: j - i = -i, 1 - i, …


def padding_mask(attention_mask: np.ndarray) -> np.ndarray:
    """Nobody sees the padding.

    Args:
        attention_mask: [..., S], nonzero where there is a real token.

    Returns:
        bool [..., 1, 1, S]: the same for every head and every query.
    """
    return (attention_mask != 0)[..., None, None, :]


def attention_mask_for(
    T: int, S: int, attention_mask: np.ndarray | None = None, window: int | None = None
) -> np.ndarray:
    """Causal, and without the padding if there is any.

    Args:
        attention_mask: None or [..., S].
        window: how many keys a query sees at most, padding among them; None: all before it.

    Returns:
        bool [T, S], or [..., 1, T, S] with padding.
    """
    causal = causal_mask(T, S, window)
    return causal if attention_mask is None else causal & padding_mask(attention_mask)


def attention_masks_for(
    T: int, S: int, attention_mask: np.ndarray | None, windows: Sequence[int | None]
) -> list[np.ndarray]:
    """That of each block, where some look no further back than a window; equal ones are one."""
    masks = {window: attention_mask_for(T, S, attention_mask, window) for window in {*windows}}
    return [masks[window] for window in windows]


def mask_forward(scores: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Put -∞ where nobody may look. Article 7.3 step 4.

        y[..., i, j] = scores[..., i, j] if mask[..., i, j] else -∞

    Args:
        scores: [..., T, S].
        mask: bool, broadcasts against scores.

    Returns:
        y [..., T, S], and the mask, which backward reads.
    """
    return np.where(mask, scores, scores.dtype.type(-np.inf)), mask


def mask_backward(dy: np.ndarray, saved: np.ndarray) -> np.ndarray:
    """Gradient of the scores: what was replaced by a constant gets none.

        dscores = dy where mask, else 0

    Args:
        dy: [..., T, S].

    Returns:
        dscores [..., T, S].
    """
    return np.where(saved, dy, dy.dtype.type(0))
