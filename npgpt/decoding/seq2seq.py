"""Writing a target: greedy, or with a beam that keeps several beginnings in play.

The source is read once: its keys and values for every decoder layer are kept, and those of the
target's own tokens in a KV cache, so that a new token costs one row. Both searches choose as
`generate` of Hugging Face's transformers does. Leaves out sampling and groups of beams.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from npgpt.decoding.arguments import flag, real_number, whole_number
from npgpt.decoding.constraints import Step, as_ids, constrained
from npgpt.decoding.kv_cache import KVCache
from npgpt.ops.lookup import check_ids, check_mask
from npgpt.ops.softmax import check_logits, log_softmax

CrossKV = list[tuple[np.ndarray, np.ndarray]]  # of every decoder layer

MOST_BEAMS = 1000  # a text each, and the scores of a whole vocabulary
MOST_PENALTY = 50  # length ** 50 is a float64 for any text that fits into memory
LONGEST = 2**31
WORTHLESS = -1e9  # the score of a beam that is not there; finite, so that sums of it compare


class EncoderDecoder(Protocol):
    """What the search asks of a model: `npgpt.Transformer`."""

    config: Any

    @property
    def generation(self) -> Any: ...
    @property
    def written_ids(self) -> int: ...
    def encode(self, input_ids: Any, attention_mask: Any = None) -> CrossKV: ...
    def decode(
        self, ids: Any, cross_kv: CrossKV, attention_mask: Any = None, kv: KVCache | None = None
    ) -> np.ndarray: ...
    def new_kv_cache(self, batch: tuple[int, ...], capacity: int) -> KVCache: ...


class Settings(NamedTuple):
    """How to search: what was asked for, else what `model.generation` says."""

    max_new_tokens: int
    num_beams: int
    length_penalty: float
    early_stopping: bool | str
    use_cache: bool
    start: int
    stops: tuple[int, ...]
    rules: Any  # see `npgpt.decoding.constraints`


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
        max_new_tokens: at most so many; None: as many as there are positions.
        num_beams: how many beginnings are kept in play; 1 takes the likeliest token each time.
        length_penalty: beams are compared by log-probability / length^penalty, so above 0 it helps
            long ones.
        early_stopping: True ends as soon as num_beams targets have ended; False when none of the
            open ones, were it to end now, would be better than the worst of these; "never" when
            none could become so.
        use_cache: False computes the whole target anew for each token.
        None, here: as `model.generation` says, where it does. What else it says is followed, too,
            see `npgpt.decoding.constraints`.

    Returns:
        The new tokens as a list of ints for [S], a list of such lists for [B, S]: without the
        start token, with the end-of-text that ended them.

    Raises:
        ValueError: bad settings; ids that cannot be read; logits that are not finite.
    """
    settings = _search_settings(
        model, max_new_tokens, num_beams, length_penalty, early_stopping, use_cache
    )
    ids = check_ids(input_ids, "input_ids")
    mask = None if attention_mask is None else check_mask(attention_mask, ids.shape)
    cross_kv = model.encode(ids, mask)
    real = np.ones(ids.shape, bool) if mask is None else mask != 0
    sources = [row[kept] for row, kept in zip(*map(np.atleast_2d, (ids, real)), strict=True)]
    if settings.num_beams == 1:
        written = _greedy(model, cross_kv, mask, ids.shape[:-1], sources, settings)
    else:
        rows = [()] if ids.ndim == 1 else [(b,) for b in range(len(ids))]
        written = [
            _beam_search(
                model,
                [(k[row], v[row]) for k, v in cross_kv],
                None if mask is None else mask[row],
                source,
                settings,
            )
            for row, source in zip(rows, sources, strict=True)
        ]
    return written[0] if ids.ndim == 1 else written


def _search_settings(
    model: EncoderDecoder,
    max_new_tokens: int | None,
    num_beams: int | None,
    length_penalty: float | None,
    early_stopping: bool | str | None,
    use_cache: bool,
) -> Settings:
    """The arguments of `generate`, and for None what `model.generation` says."""
    config, rules = model.config, model.generation
    if max_new_tokens is None:
        wanted = rules.max_new_tokens or (rules.max_length or LONGEST) - 1  # the start token counts
        max_new_tokens = min(wanted, config.max_position_embeddings)
    early_stopping = rules.early_stopping if early_stopping is None else early_stopping
    never = isinstance(early_stopping, str) and early_stopping == "never"
    if not never and not isinstance(early_stopping, (bool, np.bool_)):
        raise ValueError(
            f'early_stopping must be True, False or "never", but is {early_stopping!r:.60}.'
        )
    num_beams = rules.num_beams if num_beams is None else num_beams
    length_penalty = rules.length_penalty if length_penalty is None else length_penalty
    starts = rules.decoder_start_token_id, rules.bos_token_id, config.decoder_start_token_id
    return Settings(
        whole_number("max_new_tokens", max_new_tokens, 1, LONGEST),
        whole_number("num_beams", num_beams, 1, MOST_BEAMS),
        real_number("length_penalty", length_penalty, -MOST_PENALTY, MOST_PENALTY),
        "never" if never else bool(early_stopping),
        flag("use_cache", use_cache),
        next(start for start in starts if start is not None),
        tuple(i for i in as_ids(rules.eos_token_id) if 0 <= i < model.written_ids),
        rules,
    )


def _greedy(
    model: EncoderDecoder,
    cross_kv: CrossKV,
    mask: np.ndarray | None,
    batch: tuple[int, ...],
    sources: list[np.ndarray],
    settings: Settings,
) -> list[list[int]]:
    """All rows side by side; a row that has ended goes on unread until all have."""
    kv = model.new_kv_cache(batch, settings.max_new_tokens) if settings.use_cache else None
    text = np.full((*batch, 1), settings.start)
    ended = np.zeros(batch, bool)
    for n in range(settings.max_new_tokens):
        logits = model.decode(text if kv is None else text[..., -1:], cross_kv, mask, kv)
        check_logits(logits)
        scores = _constrained(np.atleast_2d(logits), np.atleast_2d(text), sources, n, settings)
        token = scores.argmax(axis=-1).reshape(batch)
        text = np.concatenate([text, token[..., None]], axis=-1)
        ended |= np.isin(token, settings.stops)
        if ended.all():
            break
    rows = text.reshape(-1, text.shape[-1])[:, 1:].tolist()
    return [_up_to_stop(row, settings.stops) for row in rows]


def _beam_search(
    model: EncoderDecoder,
    cross_kv: CrossKV,
    mask: np.ndarray | None,
    source: np.ndarray,
    settings: Settings,
) -> list[int]:
    """The best of the targets that ended, for one source.

    All beams extended by all tokens are candidates; the best of them that end are set aside, the
    best that do not are the next beams. There are candidates enough for all beams to go on even if
    every other one ends.
    """
    K = settings.num_beams
    kv = model.new_kv_cache((K,), settings.max_new_tokens) if settings.use_cache else None
    text = np.full((K, 1), settings.start)
    scores = np.full(K, WORTHLESS)
    scores[0] = 0  # all beams begin alike, so only one counts
    ended: list[tuple[float, list[int]]] = []  # best first, K at most
    for n in range(settings.max_new_tokens):
        logits = model.decode(text if kv is None else text[:, -1:], cross_kv, mask, kv)
        check_logits(logits)
        # In float64 whatever the model's dtype: many of them are added up.
        log_probs = log_softmax(logits.astype(np.float64))
        log_probs = _constrained(log_probs, text, [source] * K, n, settings)
        log_probs = log_softmax(log_probs) if settings.rules.renormalize_logits else log_probs
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


def _constrained(
    scores: np.ndarray,
    text: np.ndarray,
    sources: list[np.ndarray],
    n: int,
    settings: Settings,
) -> np.ndarray:
    """The scores [B, V] of the n-th new token of each text [B, 1 + n]."""
    last = n + 1 == settings.max_new_tokens
    rows = zip(scores, text, sources, strict=True)
    return np.stack(
        [
            constrained(row, Step(written, source, 1, n, last), settings.rules, settings.stops)
            for row, written, source in rows
        ]
    )


def _up_to_stop(tokens: list[int], stops: tuple[int, ...]) -> list[int]:
    end = next((i for i, token in enumerate(tokens) if token in stops), len(tokens))
    return tokens[: end + 1]
