"""Sampling: choose the next token from the logits. Temperature first, then top-k, then top-p.

Probabilities are float64 here whatever the model's dtype: 50,257 of them are added up.
"""

from __future__ import annotations

import numpy as np

from npgpt.decoding.arguments import real_number, whole_number
from npgpt.ops.softmax import check_logits


def check_settings(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raise ValueError unless temperature >= 0, top_k >= 0 and 0 <= top_p <= 1, all finite."""
    real_number("temperature", temperature, 0)
    if top_k is not None:
        whole_number("top_k", top_k, 0)
    if top_p is not None:
        real_number("top_p", top_p, 0, 1)


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
    order = np.argsort(-scaled, kind="stable")  # likeliest first
    if top_k:
        probs[order[top_k:]] = 0
    probs /= probs.sum()
    if top_p is not None and top_p < 1:
        before = np.cumsum(probs[order]) - probs[order]  # what the likelier tokens add up to
        probs[order[1:][before[1:] >= top_p]] = 0
        probs /= probs.sum()
    return probs


def sample(
    logits: np.ndarray,
    rng: np.random.Generator,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> int:
    """One token id. Temperature 0 takes the likeliest, of equals the lowest id.

    Args:
        logits: [V].
        rng: gives one uniform number a token, none at temperature 0.

    Raises:
        ValueError: a logit is NaN or +∞.
    """
    check_logits(logits)
    if temperature == 0:
        return int(logits.argmax())
    probs = next_token_probs(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    total = np.cumsum(probs)
    # The first token whose running total exceeds the draw; its own probability is then positive.
    return int(np.searchsorted(total, rng.random() * total[-1], side="right"))
