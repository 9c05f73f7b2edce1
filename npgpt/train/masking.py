"""What BERT is trained on: it predicts some tokens of a text, most of them hidden (chapter 3)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from npgpt.decoding.arguments import real_number, whole_number, whole_numbers
from npgpt.ops.cross_entropy import IGNORE_INDEX
from npgpt.ops.lookup import as_array, check_integers

HIDDEN, REPLACED = 0.8, 0.1  # of the tokens to predict; the rest stays as it is


def mask_tokens(
    ids: Any,
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
    fraction = real_number("fraction", fraction, 0, 1)
    vocab_size, mask_id = (
        whole_number("vocab_size", vocab_size, 1),
        whole_number("mask_id", mask_id, 0),
    )
    special = np.unique([mask_id, *whole_numbers("special_ids", special_ids)])
    ids = as_array(ids, "ids")
    check_integers(ids, "ids")
    if ids.dtype.kind == "u":  # no unsigned integer holds -100
        ids = ids.astype(np.int64)
    ordinary = np.setdiff1d(np.arange(vocab_size), special)
    if not ordinary.size:
        raise ValueError(f"all {vocab_size} tokens of the vocabulary are special.")
    chosen = (rng.random(ids.shape) < fraction) & ~np.isin(ids, special)
    fate = rng.random(ids.shape)
    drawn = rng.choice(ordinary, ids.shape).astype(ids.dtype)
    read = np.where(chosen & (fate < HIDDEN), ids.dtype.type(mask_id), ids)
    read = np.where(chosen & (fate >= HIDDEN) & (fate < HIDDEN + REPLACED), drawn, read)
    return read, np.where(chosen, ids, ids.dtype.type(IGNORE_INDEX))
