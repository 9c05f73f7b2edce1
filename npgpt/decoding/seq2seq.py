"""Writing a target: greedy, or with a beam that keeps several beginnings in play.

The source is read once: its keys and values for every decoder layer are kept, and those of the
target's own tokens in a KV cache, so that a new token costs one row. Both searches choose as
`generate` of Hugging Face's transformers does. Leaves out sampling, minimal lengths, and bans of
repeated n-grams.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from npgpt.decoding.arguments import flag, real_number, whole_number
from npgpt.decoding.causal import as_ids
from npgpt.decoding.kv_cache import KVCache
from npgpt.ops.lookup import check_ids, check_mask
from npgpt.ops.softmax import check_logits, log_softmax

CrossKV = list[tuple[np.ndarray, np.ndarray]]  # of every decoder layer

MOST_BEAMS = 1000  # a text each, and the scores of a whole vocabulary
MOST_PENALTY = 50.0  # length ** 50 is a float64 for any text that fits into memory
WORTHLESS = -1e9  # the score of a beam that is not there; finite, so that sums of it compare


class EncoderDecoder(Protocol):
    """What the search asks of a model: `npgpt.Transformer`."""

    config: Any

    def encode(self, input_ids: Any, attention_mask: Any = None) -> CrossKV: ...
    def decode(
        self, ids: Any, cross_kv: CrossKV, attention_mask: Any = None, kv: KVCache | None = None
    ) -> np.ndarray: ...
    def new_kv_cache(self, batch: tuple[int, ...], capacity: int) -> KVCache: ...


class Settings(NamedTuple):
    """How to search: what was asked for, else what the model's configuration says."""

    max_new_tokens: int
    num_beams: int
    length_penalty: float
    early_stopping: bool | str
    use_cache: bool
    stops: tuple[int, ...]
    banned: tuple[int, ...]
    first: int | None  # the token that must come first, if any
    last: tuple[int, ...]  # those of which one must come last, where nothing else ended the target
    renormalize: bool  # whether the tokens that may come share the probability of those that not


def generate(
    model: EncoderDecoder,
    input_ids: Any,
    *,
    attention_mask: Any = None,
    max_new_tokens: int | None = None,
    num_beams: int | None = None,
    length_penalty: float | None = None,
    early_stopping: bool | str | None = None,
    use_cache: bool = True,
) -> Any:
    """The target that the model writes for a source.

    Args:
        input_ids: [S] or [B, S].
        attention_mask: like input_ids, 0 for padding.
        max_new_tokens: at most so many; None: the configuration's max_length, or as many as there
            are positions. The configuration's forced_eos_token_id then comes last.
        num_beams: how many beginnings are kept in play; 1 takes the likeliest token each time.
        length_penalty: beams are compared by log-probability / length^penalty, so above 0 it helps
            long ones.
        early_stopping: True ends as soon as num_beams targets have ended; False when none of the
            open ones, were it to end now, would be better than the worst of these; "never" when
            none could become so.
        use_cache: False computes the whole target anew for each token.
        None, here: as the configuration says.

    Returns:
        The new tokens as a list of ints for [S], a list of such lists for [B, S]: without the
        start token, with the end-of-text that ended them.

    Raises:
        ValueError: bad settings; ids that cannot be read; logits that are not finite.
    """
    settings = _search_settings(
        model.config, max_new_tokens, num_beams, length_penalty, early_stopping, use_cache
    )
    ids = check_ids(input_ids, "input_ids")
    mask = None if attention_mask is None else check_mask(attention_mask, ids.shape)
    cross_kv = model.encode(ids, mask)
    rows = [()] if ids.ndim == 1 else [(b,) for b in range(len(ids))]
    if settings.num_beams == 1:
        written = _greedy(model, cross_kv, mask, ids.shape[:-1], settings)
    else:
        written = [
            _beam_search(
                model,
                [(k[row], v[row]) for k, v in cross_kv],
                None if mask is None else mask[row],
                settings,
            )
            for row in rows
        ]
    return written[0] if ids.ndim == 1 else written


def _search_settings(
    config: Any,
    max_new_tokens: int | None,
    num_beams: int | None,
    length_penalty: float | None,
    early_stopping: bool | str | None,
    use_cache: bool,
) -> Settings:
    """The arguments of `generate`, and for None what the configuration says."""
    if max_new_tokens is None:
        max_new_tokens = config.max_position_embeddings
        if config.max_length is not None:
            max_new_tokens = min(max_new_tokens, config.max_length - 1)
    early_stopping = config.early_stopping if early_stopping is None else early_stopping
    never = isinstance(early_stopping, str) and early_stopping == "never"
    if not never and not isinstance(early_stopping, (bool, np.bool_)):
        raise ValueError(
            f'early_stopping must be True, False or "never", but is {early_stopping!r:.60}.'
        )
    num_beams = config.num_beams if num_beams is None else num_beams
    length_penalty = config.length_penalty if length_penalty is None else length_penalty
    return Settings(
        whole_number("max_new_tokens", max_new_tokens, 1),
        whole_number("num_beams", num_beams, 1, MOST_BEAMS),
        real_number("length_penalty", length_penalty, -MOST_PENALTY, MOST_PENALTY),
        "never" if never else bool(early_stopping),
        flag("use_cache", use_cache),
        as_ids(config.eos_token_id),
        config.banned_ids,
        config.forced_bos_token_id,
        as_ids(config.forced_eos_token_id),
        config.renormalize_logits,
    )


def _greedy(
    model: EncoderDecoder,
    cross_kv: CrossKV,
    mask: np.ndarray | None,
    batch: tuple[int, ...],
    settings: Settings,
) -> list[list[int]]:
    """All rows side by side; a row that has ended goes on unread until all have."""
    kv = model.new_kv_cache(batch, settings.max_new_tokens) if settings.use_cache else None
    text = np.full((*batch, 1), model.config.decoder_start_token_id)
    ended = np.zeros(batch, bool)
    for n in range(settings.max_new_tokens):
        logits = model.decode(text if kv is None else text[..., -1:], cross_kv, mask, kv)
        check_logits(logits)
        token = _restricted(logits, n, settings).argmax(axis=-1)
        text = np.concatenate([text, token[..., None]], axis=-1)
        ended |= np.isin(token, settings.stops)
        if ended.all():
            break
    rows = text.reshape(-1, text.shape[-1])[:, 1:].tolist()
    return [_up_to_stop(row, settings.stops) for row in rows]


def _beam_search(
    model: EncoderDecoder, cross_kv: CrossKV, mask: np.ndarray | None, settings: Settings
) -> list[int]:
    """The best of the targets that ended, for one source.

    All beams extended by all tokens are candidates; the best of them that end are set aside, the
    best that do not are the next beams. There are candidates enough for all beams to go on even if
    every other one ends.
    """
    K = settings.num_beams
    kv = model.new_kv_cache((K,), settings.max_new_tokens) if settings.use_cache else None
    text = np.full((K, 1), model.config.decoder_start_token_id)
    scores = np.full(K, WORTHLESS)
    scores[0] = 0  # all beams begin alike, so only one counts
    ended: list[tuple[float, list[int]]] = []  # best first, K at most
    for n in range(settings.max_new_tokens):
        logits = model.decode(text if kv is None else text[:, -1:], cross_kv, mask, kv)
        check_logits(logits)
        # In float64 whatever the model's dtype: many of them are added up.
        log_probs = _restricted(log_softmax(logits.astype(np.float64)), n, settings)
        log_probs = log_softmax(log_probs) if settings.renormalize else log_probs
        totals = (scores[:, None] + log_probs).reshape(-1)
        best = _highest(totals, max(2, 1 + len(settings.stops)) * K)
        parents, tokens = np.divmod(best, log_probs.shape[-1])
        candidates = np.concatenate([text[parents], tokens[:, None]], axis=-1)
        ends = np.isin(tokens, settings.stops) | (n + 1 == settings.max_new_tokens)
        for i in np.flatnonzero(ends[:K]):
            score = float(totals[best[i]]) / (n + 1) ** settings.length_penalty
            ended.append((score, candidates[i, 1:].tolist()))
        ended = sorted(ended, key=lambda each: -each[0])[:K]
        if ends.all():
            break
        going = np.flatnonzero(~ends)[:K]
        text, scores = candidates[going], totals[best[going]]
        if len(ended) == K and not _may_improve(float(scores[0]), n + 1, ended[-1][0], settings):
            break
        if kv is not None:
            kv.select(parents[going])
    return ended[0][1]


def _may_improve(score: float, length: int, worst: float, settings: Settings) -> bool:
    """Whether the best open beam could still become better than the worst that ended."""
    if settings.early_stopping is True:
        return False
    if settings.early_stopping == "never" and settings.length_penalty > 0:
        length = settings.max_new_tokens  # dividing by more makes a negative score better
    return score / length**settings.length_penalty > worst


def _highest(scores: np.ndarray, count: int) -> np.ndarray:
    """Places of the `count` highest scores, best first: a sort of those alone, not of all."""
    some = np.argpartition(-scores, min(count, len(scores) - 1))[:count]
    return some[np.argsort(-scores[some], kind="stable")]


def _restricted(scores: np.ndarray, n: int, settings: Settings) -> np.ndarray:
    """-∞ for tokens that must not come as the n-th new one; a token that must come gets 0."""
    scores = scores.copy()
    scores[..., list(settings.banned)] = -np.inf
    forced = [settings.first] if n == 0 and settings.first is not None else []
    if n + 1 == settings.max_new_tokens and settings.last:
        forced = list(settings.last)
    if forced:
        scores[...] = -np.inf
        scores[..., forced] = 0
    return scores


def _up_to_stop(tokens: list[int], stops: tuple[int, ...]) -> list[int]:
    end = next((i for i, token in enumerate(tokens) if token in stops), len(tokens))
    return tokens[: end + 1]
