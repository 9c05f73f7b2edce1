"""Sampling: choose the next token from the logits. Temperature first, then top-k, then top-p.

Probabilities are float64 here whatever the model's dtype: 50,257 of them are added up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npgpt.decoding.arguments import real_number, whole_number
from npgpt.ops.softmax import check_logits


class Sampling(NamedTuple):
    """How a token is drawn, see `next_token_probs`."""

    temperature: float
    top_k: int | None
    top_p: float | None


def check_settings(temperature: float, top_k: int | None, top_p: float | None) -> Sampling:
    """These as Python's numbers; ValueError unless temperature, top_k >= 0 and 0 <= top_p <= 1."""
    return Sampling(
        real_number("temperature", temperature, 0),
        None if top_k is None else whole_number("top_k", top_k, 0),
        None if top_p is None else real_number("top_p", top_p, 0, 1),
    )


def next_token_probs(
    logits: np.ndarray, *, temperature: float, top_k: int | None = None, top_p: float | None = None
) -> np.ndarray:
    """The distribution that sampling draws from.

        probs = softmax(logits / temperature), then only the top_k likeliest tokens, then only the
        fewest likeliest tokens whose probabilities reach top_p, rescaled to sum to 1

    Args:
        logits: [V]; -∞ for a token that must not come.
        temperature: > 0; below 1 sharpens.
        top_k: None or 0 keeps all; of equals at the border the lower id stays.
        top_p: None or 1 keeps all; the token that crosses the border stays, so 0 keeps one.

    Returns:
        probs [V], float64.
    """
    scaled = logits.astype(np.float64)
    scaled -= scaled.max()
    with np.errstate(over="ignore"):  # by a temperature near 0: -∞, as it should be
        probs = np.exp(scaled / temperature)
    if top_k and top_k < len(probs):
        probs[~_highest(scaled, int(top_k))] = 0
    probs /= probs.sum()
    if top_p is not None and top_p < 1:
        # To sort these is enough: the others together have less than half of what top_p leaves.
        likely = np.flatnonzero(probs * (2 * len(probs)) >= 1 - top_p)
        order = likely[np.argsort(-scaled[likely], kind="stable")]  # likeliest first
        stays = np.cumsum(probs[order]) - probs[order] < top_p  # what the likelier ones add up to
        stays[0] = True
        kept = np.zeros_like(probs)
        kept[order[stays]] = probs[order[stays]]
        probs = kept / kept.sum()
    return probs


def _highest(scores: np.ndarray, k: int) -> np.ndarray:
    """True for the k highest [V]; of equals at the border for the lower ids."""
    border = np.partition(scores, -k)[-k]
    kept = scores > border
    kept[np.flatnonzero(scores == border)[: k - kept.sum()]] = True
    return kept


def sample(
    logits: np.ndarray,
    rng: np.random.Generator,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> int:
    """One token id, see `sample_rows`.

    Args:
        logits: [V].
    """
    settings = check_settings(temperature, top_k, top_p)
    return int(sample_rows(logits[None], rng, settings)[0])


def sample_rows(logits: np.ndarray, rng: np.random.Generator, settings: Sampling) -> np.ndarray:
    """A token id for each row. Temperature 0 takes the likeliest, of equals the lowest id.

    Args:
        logits: [B, V].
        rng: gives one uniform number a token, none at temperature 0.

    Returns:
        ids [B].

    Raises:
        ValueError: a logit is NaN or +∞, or all of a row are -∞.
    """
    check_logits(logits)
    if logits.max(axis=-1).min() == -np.inf:
        raise ValueError("no token may come next: what is asked for forbids every one.")
    if settings.temperature == 0:
        return logits.argmax(axis=-1)
    totals = (np.cumsum(next_token_probs(row, **settings._asdict())) for row in logits)
    # The first token whose running total exceeds the draw; its own probability is then positive.
    return np.array([total.searchsorted(rng.random() * total[-1], "right") for total in totals])
