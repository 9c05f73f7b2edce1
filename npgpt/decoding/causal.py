"""Decoding: read the prompt once (prefill), then one token at a time.

With a KV cache a new token costs one row; without it the whole text is computed again. Both give
the same tokens; their logits differ by rounding only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterator
from typing import Any, Protocol

import numpy as np

from npgpt.decoding.arguments import flag, whole_number, whole_numbers
from npgpt.decoding.constraints import Step, as_ids, constrained, constrains
from npgpt.decoding.kv_cache import KVCache
from npgpt.decoding.sampling import Sampling, check_settings, sample_rows
from npgpt.ops.lookup import as_array, check_ids, check_mask


class LanguageModel(Protocol):
    """What decoding asks of a model that reads from left to right: GPT2 and Llama."""

    config: Any

    @property
    def generation(self) -> Any: ...
    @property
    def context(self) -> int: ...
    @property
    def rows(self) -> int: ...

    def __call__(
        self, ids: Any, attention_mask: Any = None, kv: KVCache | None = None, *, last_only: bool
    ) -> np.ndarray: ...
    def new_kv_cache(self, batch: tuple[int, ...], capacity: int | None) -> KVCache: ...


NEW_TOKENS = 40  # where nobody says how many


def generate(
    model: LanguageModel,
    ids: Any,
    max_new_tokens: int | None = None,
    *,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    attention_mask: Any = None,
    stop_ids: Collection[int] | None = None,
    allowed: np.ndarray | None = None,
    use_cache: bool = True,
    slide: bool = False,
) -> Iterator[Any]:
    """Continue a text, yielding each token as soon as it is chosen.

    Args:
        ids: the prompt, [T] or [B, T]; it is not changed.
        max_new_tokens: how many tokens at most; None: as `model.generation` says, else 40.
        temperature, top_k, top_p: see `sampling_of`.
        seed: same seed, same text, with or without cache. None: different every time.
        attention_mask: [T] or [B, T], 0 for padding; pad rows of different length on the left.
        stop_ids: tokens after which a row ends, themselves included; None: the end-of-text of
            `model.generation`; (): never.
        allowed: bool [V], False for ids that must not come, such as those without a token. Rows of
            the token table beyond the configuration's vocab_size are padding and never come.
        use_cache: False computes everything anew for each token.
        slide: True goes on beyond the context length: a row that is full forgets its older half,
            and the rest is read again from position 0 (the cache holds absolute positions).

    What else `model.generation` says is followed, too, see `npgpt.decoding.constraints`.

    Returns:
        Iterator over ints for [T], over int arrays [B] for [B, T]; a row that has ended repeats its
        last token until all have.

    Raises:
        ValueError: bad settings; a prompt, or a prompt and its new tokens, beyond the context.
    """
    rules = model.generation
    sampling = sampling_of(rules, temperature, top_k, top_p)
    seed = None if seed is None else whole_number("seed", seed, 0)
    slide, use_cache = flag("slide", slide), flag("use_cache", use_cache)
    stops = end_of_text_ids(model) if stop_ids is None else whole_numbers("stop_ids", stop_ids)
    ids, mask = _check_prompt(ids, attention_mask)
    longest = int(mask.sum(axis=-1).max())
    if max_new_tokens is None:
        max_new_tokens = _new_tokens(rules, longest, math.inf if slide else model.context)
    max_new_tokens = whole_number("max_new_tokens", max_new_tokens, 0)
    _check_length(longest, max_new_tokens, model.context, slide)
    forbidden = _forbidden_ids(model, allowed)
    rng = np.random.default_rng(seed)
    known = known_ids(stops, model)
    prompts = [row[real] for row, real in zip(*map(np.atleast_2d, (ids, mask)), strict=True)]

    def choose(
        logits: np.ndarray, text: np.ndarray, mask: np.ndarray, ended: np.ndarray, new: int
    ) -> np.ndarray:
        """[..., V], what is written [..., T] and which rows have ended [...] -> tokens [...]."""
        scores = np.atleast_2d(logits)
        if constrains(rules):
            texts = zip(*map(np.atleast_2d, (text, mask)), prompts, strict=True)
            last = new + 1 == max_new_tokens
            steps = [Step(ids[real], ids_0, len(ids_0), new, last) for ids, real, ids_0 in texts]
            going = np.flatnonzero(~np.atleast_1d(ended))  # what has ended breaks no rule
            scores = scores.copy()
            scores[going] = [constrained(scores[b], steps[b], rules, known) for b in going]
        if forbidden.any():  # after the rules, which may force a token
            scores = np.where(forbidden, scores.dtype.type(-np.inf), scores)
        return sample_rows(scores, rng, sampling).reshape(logits.shape[:-1])

    tokens = _tokens(model, ids, mask, max_new_tokens, choose, stops, use_cache)
    return tokens if ids.ndim == 2 else (int(token) for token in tokens)


def sampling_of(
    rules: Any, temperature: float | None, top_k: int | None, top_p: float | None
) -> Sampling:
    """How to draw tokens: as told, and for None as generation_config.json says.

    Its temperature, top_k and top_p count where it says do_sample; else decoding is greedy
    (temperature 0) unless told otherwise. Raises ValueError as `check_settings`.
    """
    if rules.do_sample:
        temperature = rules.temperature if temperature is None else temperature
        top_k = rules.top_k if top_k is None else top_k
        top_p = rules.top_p if top_p is None else top_p
    return check_settings(0.0 if temperature is None else temperature, top_k, top_p)


def _tokens(
    model: LanguageModel,
    text: np.ndarray,
    mask: np.ndarray,
    max_new_tokens: int,
    choose: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int], np.ndarray],
    stops: tuple[int, ...],
    use_cache: bool,
) -> Iterator[np.ndarray]:
    context, kv, ended = model.context, None, np.zeros(text.shape[:-1], bool)
    for left in range(max_new_tokens, 0, -1):
        if mask.sum(axis=-1).max() > context:
            text, mask, kv = *_slid(text, mask, context), None
        unread = text if kv is None else text[..., -1:]  # prefill, or one token
        if use_cache and kv is None:
            kv = model.new_kv_cache(text.shape[:-1], text.shape[-1] + min(left, context))
        logits = model(unread, mask, kv, last_only=True)[..., -1, :]
        chosen = choose(logits, text, mask, ended, max_new_tokens - left)
        token = np.where(ended, text[..., -1], chosen)
        yield token
        ended |= np.isin(token, stops)
        if ended.all():
            return
        text = np.concatenate([text, token[..., None]], axis=-1)
        mask = np.concatenate([mask, np.ones_like(mask[..., :1])], axis=-1)


def _slid(text: np.ndarray, mask: np.ndarray, context: int) -> tuple[np.ndarray, np.ndarray]:
    """Both without the older half of each row that is full, and without what no row has left."""
    length = mask.sum(axis=-1, keepdims=True)
    behind = length - mask.cumsum(axis=-1)  # how many tokens of its row follow each
    mask = mask & ((length <= context) | (behind < context // 2))
    start = mask.reshape(-1, mask.shape[-1]).any(axis=0).argmax()
    return text[..., start:], mask[..., start:]


def end_of_text_ids(
    model: LanguageModel, vocabulary: Container[int] | None = None
) -> tuple[int, ...]:
    """The ids that end a text, as far as model and vocabulary have them."""
    return known_ids(as_ids(model.generation.eos_token_id), model, vocabulary)


def start_of_text_ids(
    model: LanguageModel, vocabulary: Container[int] | None = None
) -> tuple[int, ...]:
    """The id after which a text begins, none or one: begin-of-text, or else an end-of-text.

    As transformers and llama.cpp begin a text without a prompt.
    """
    begin = as_ids(model.generation.bos_token_id) or as_ids(model.config.bos_token_id)
    ends = end_of_text_ids(model, vocabulary) or as_ids(model.config.eos_token_id)
    return known_ids((*begin, *ends), model, vocabulary)[:1]


def known_ids(
    ids: tuple[int, ...], model: LanguageModel, vocabulary: Container[int] | None = None
) -> tuple[int, ...]:
    """Those of the ids that model and vocabulary have."""
    found = range(model.config.vocab_size)
    return tuple(i for i in ids if i in found and (vocabulary is None or i in vocabulary))


def _check_prompt(ids: Any, attention_mask: Any) -> tuple[np.ndarray, np.ndarray]:
    ids = check_ids(ids)
    if attention_mask is None:
        return ids, np.ones(ids.shape, bool)
    mask = check_mask(attention_mask, ids.shape)
    if not mask[..., -1].all():
        raise ValueError("a prompt ends in padding; pad on the left, so that new tokens follow it.")
    return ids, mask


def _new_tokens(rules: Any, prompt: int, context: float) -> int:
    """How many tokens generation_config.json wants, as far as there are positions."""
    wanted: int | None = rules.max_new_tokens
    if wanted is None and rules.max_length is None:
        return NEW_TOKENS
    if wanted is None:
        wanted = rules.max_length - prompt
        if wanted < 1:
            raise ValueError(
                f"the prompt has {prompt} tokens, but max_length of the model's files is "
                f"{rules.max_length}; say how many new ones (max_new_tokens)."
            )
    return int(max(1, min(wanted, context + 1 - prompt)))


def _check_length(prompt: int, new: int, context: int, slide: bool) -> None:
    if slide:
        if context < 2:
            raise ValueError("a context of one token cannot slide.")
        return
    # The last new token is chosen but never read, so it needs no position.
    if max(prompt, prompt + new - 1) > context:
        raise ValueError(
            f"{prompt} prompt tokens and {new} new ones do not fit a context of {context}; "
            "shorten the prompt, ask for fewer, or let the window slide (slide=True, --slide)."
        )


def _forbidden_ids(model: LanguageModel, allowed: Any) -> np.ndarray:
    """bool [V], True for padding rows of wte and for whatever the caller does not allow."""
    forbidden = np.arange(model.rows) >= model.config.vocab_size
    if allowed is not None:
        allowed = as_array(allowed, "allowed")
        if allowed.shape != forbidden.shape or allowed.dtype != bool:
            raise ValueError(
                f"allowed has shape {[*allowed.shape]} and dtype {allowed.dtype}, but must be a "
                f"bool for each of the model's {len(forbidden)} ids."
            )
        forbidden |= ~allowed
    if forbidden.all():
        raise ValueError("every id is forbidden; nothing can be generated.")
    return forbidden
