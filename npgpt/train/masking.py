"""What BERT is trained on: it predicts some tokens of a text, most of them hidden (chapter 3)."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from npgpt.ops.cross_entropy import IGNORE_INDEX

HIDDEN, REPLACED = 0.8, 0.1  # of the tokens to predict; the rest stays as it is


def mask_tokens(
    ids: np.ndarray,
    rng: np.random.Generator,
    *,
    mask_id: int,
    vocab_size: int,
    special_ids: Collection[int] = (),
    fraction: float = 0.15,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose tokens to predict, and hide them by the rule of BERT (Devlin et al. 2018, 3.1).

    Of the tokens to predict, 80 % become the mask, so that the model has to use the others; 10 %
    become a random token, so that it must not trust what it reads; 10 % stay, because the texts
    that it will read later are not full of masks.

    Args:
        ids: [...] integers.
        rng: draws which tokens, what becomes of them, and the random ones.
        mask_id: the mask's id.
        vocab_size: V; random tokens are drawn from 0..V-1 without the special ones.
        special_ids: never predicted, never drawn: padding, [CLS], [SEP]. The mask is always one.
        fraction: probability that a token is to be predicted.

    Returns:
        What the model reads, like ids, and the targets, like ids: the token where one is to be
        predicted, -100 elsewhere; int64 for unsigned ids. A short text may have no target at all.

    Raises:
        ValueError: a fraction outside [0, 1], or no token that is not special.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be in [0, 1], but is {fraction}.")
    if ids.dtype.kind == "u":  # no unsigned integer holds -100
        ids = ids.astype(np.int64)
    special = np.unique([mask_id, *special_ids])
    ordinary = np.setdiff1d(np.arange(vocab_size), special)
    if not ordinary.size:
        raise ValueError(f"all {vocab_size} tokens of the vocabulary are special.")
    chosen = (rng.random(ids.shape) < fraction) & ~np.isin(ids, special)
    fate = rng.random(ids.shape)
    drawn = rng.choice(ordinary, ids.shape).astype(ids.dtype)
    read = np.where(chosen & (fate < HIDDEN), ids.dtype.type(mask_id), ids)
    read = np.where(chosen & (fate >= HIDDEN) & (fate < HIDDEN + REPLACED), drawn, read)
    return read, np.where(chosen, ids, ids.dtype.type(IGNORE_INDEX))
