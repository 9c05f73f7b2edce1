"""Tokens that stand for what a vocabulary lacks are counted, and said."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Protocol

import numpy as np


class HasUnknown(Protocol):
    """A tokenizer: the id and the text of such a token, None where there is none."""

    @property
    def unknown(self) -> tuple[int, str] | None: ...


def warn_of_unknown(ids: Sequence[int] | np.ndarray, tokenizer: HasUnknown) -> None:
    """Warn, with their number, of tokens that stand for what the vocabulary lacks."""
    if tokenizer.unknown is None:
        return
    number, name = tokenizer.unknown
    if count := np.count_nonzero(np.asarray(ids) == number):
        warnings.warn(
            f"{count} of {len(ids)} tokens are {name}; is the vocabulary lower-case, or of another "
            "language?",
            UserWarning,
            stacklevel=3,
        )
