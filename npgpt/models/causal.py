"""What every model that reads from left to right asks of its input: shapes, and positions."""

from __future__ import annotations

from typing import Any

import numpy as np


def check_input(ids: Any, attention_mask: Any, past: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Both as arrays of matching shapes; the range of ids is checked where they are looked up.

    Raises ValueError unless ids are [T] or [B, T], not empty, and attention_mask [past + T] or
    [B, past + T].
    """
    ids = np.asarray(ids)
    if ids.ndim not in (1, 2) or ids.size == 0:
        raise ValueError(f"ids must be [T] or [B, T] and not empty, but have shape {[*ids.shape]}.")
    if attention_mask is None:
        return ids, None
    attention_mask = np.asarray(attention_mask)
    wanted = (*ids.shape[:-1], past + ids.shape[-1])
    if attention_mask.shape != wanted:
        raise ValueError(
            f"attention_mask has shape {[*attention_mask.shape]}, but these ids want {[*wanted]}."
        )
    return ids, attention_mask


def new_positions(past: int, T: int, attention_mask: np.ndarray | None) -> np.ndarray:
    """Positions of the T new tokens: [T], or [..., T] counting only what is not padding."""
    if attention_mask is None:
        return np.arange(past, past + T)
    return np.maximum(np.cumsum(attention_mask != 0, axis=-1) - 1, 0)[..., past:]


def check_positions(positions: np.ndarray, context: int) -> None:
    """Raise ValueError unless every position has a row in a table of `context` rows."""
    if positions.max() >= context:
        raise ValueError(
            f"the text is {positions.max() + 1} tokens long, but the model has positions for "
            f"{context}; shorten it."
        )
