"""Constraints on the next token, in the order in which Hugging Face's transformers applies them.

Its `generation/utils.py` (`_get_logits_processor`) has the order, `generation/logits_process.py`
each of them. Scores are logits in greedy search and sampling, log-probabilities in beam search;
padding counts for nothing, so that a row of a batch goes on as it would alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

LARGEST_GROWTH = 1e30  # of the pull towards the end; beyond it scores would overflow


# What `constrained` reads of the rules, with the values that change nothing.
NEUTRAL = {
    "encoder_repetition_penalty": 1.0,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": None,
    "min_length": 0,
    "min_new_tokens": 0,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "exponential_decay_length_penalty": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}


class Step(NamedTuple):
    """Where a text stands before its next token."""

    text: np.ndarray  # ids of prompt (or start token) and new tokens, without padding
    source: np.ndarray  # ids that the encoder read; of a model without encoder, the prompt
    begin: int  # tokens before the first new one, with those that a window has forgotten
    new: int  # tokens written so far
    last: bool  # whether the next token is the last one


def constrains(rules: Any) -> bool:
    """Whether `constrained` could change a score."""
    return any(getattr(rules, name) != value for name, value in NEUTRAL.items())


def constrained(
    scores: np.ndarray, step: Step, rules: Any, stops: tuple[int, ...] = ()
) -> np.ndarray:
    """The scores [V] of the next token as far as it may come, -∞ where it may not.

    Args:
        rules: what generation_config.json says, see `npgpt.models.generation.Generation`.
        stops: the ids that end a text, each 0..V-1.
    """
    scores = scores.copy()
    text, source = step.text, step.source
    scale(scores, source, 1 / rules.encoder_repetition_penalty)
    scale(scores, text, rules.repetition_penalty)
    scores[completions(text, text, rules.no_repeat_ngram_size)] = -np.inf
    scores[completions(text, source, rules.encoder_no_repeat_ngram_size)] = -np.inf
    scores[bad_endings(text, rules.bad_words_ids or (), stops)] = -np.inf
    if step.begin + step.new < rules.min_length or step.new < rules.min_new_tokens:
        scores[[*stops]] = -np.inf
    if (forced := _forced(step, rules)) is not None:
        scores[:] = -np.inf
        scores[forced] = 0
    if decay := rules.exponential_decay_length_penalty:
        pull(scores, [*stops], step.new - decay[0], decay[1])
    scores[_within(rules.suppress_tokens, len(scores))] = -np.inf
    # Where a first token is forced, the second is the first that is free.
    if step.new == int(step.begin == 1 and rules.forced_bos_token_id is not None):
        scores[_within(rules.begin_suppress_tokens, len(scores))] = -np.inf
    return scores


def scale(scores: np.ndarray, ids: np.ndarray, penalty: float) -> None:
    """Make these tokens less likely in place: s / penalty where s > 0, else s · penalty.

    Keskar et al. 2019 (CTRL), section 4.1; a penalty below 1 makes them likelier.
    """
    if penalty != 1:
        found = scores[ids]
        scores[ids] = np.where(found < 0, found * penalty, found / penalty)


def completions(text: np.ndarray, seen: np.ndarray, n: int) -> np.ndarray:
    """The tokens that would make the end of `text` an n-gram of `seen`; none for n = 0."""
    if not 0 < n <= len(seen) or len(text) < n - 1:
        return seen[:0]
    windows = np.lib.stride_tricks.sliding_window_view(seen, n)
    return windows[(windows[:, :-1] == text[len(text) + 1 - n :]).all(axis=1), -1]


def bad_endings(
    text: np.ndarray, words: Iterable[list[int]], stops: tuple[int, ...] = ()
) -> list[int]:
    """The tokens that would complete one of the words at the end of `text`; no end of text is."""
    written = text.tolist()
    return [
        last
        for *begin, last in words
        if written[len(written) - len(begin) :] == begin and (begin or last not in stops)
    ]


def pull(scores: np.ndarray, stops: list[int], over: int, factor: float) -> None:
    """Make an end of text likelier in place: s + |s| (factor^over - 1), from `over` = 1 on."""
    if over > 0:
        with np.errstate(over="ignore"):
            growth = min(float(np.power(float(factor), over)), LARGEST_GROWTH) - 1
        found = scores[stops]
        scores[stops] = found + np.where(np.isfinite(found), np.abs(found), 0) * growth


def as_ids(value: int | list[int] | None) -> tuple[int, ...]:
    """The ids of a setting that is an id, a list of ids, or null."""
    return () if value is None else tuple(value) if isinstance(value, list) else (value,)


def _forced(step: Step, rules: Any) -> list[int] | None:
    """The tokens of which one must come next, None if that is open."""
    if step.last and (last := as_ids(rules.forced_eos_token_id)):
        return [*last]
    if step.begin + step.new == 1 and rules.forced_bos_token_id is not None:
        return [rules.forced_bos_token_id]
    return None


def _within(ids: int | list[int] | None, V: int) -> list[int]:
    return [i for i in as_ids(ids) if 0 <= i < V]
