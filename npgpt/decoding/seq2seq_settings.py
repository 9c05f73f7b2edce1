"""How a target is searched for: what was asked, else what the model's configuration says."""

from __future__ import annotations

from typing import Any, NamedTuple


class Settings(NamedTuple):
    """How to search; see `npgpt.decoding.seq2seq.generate`."""

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


def search_settings(
    config: Any,
    max_new_tokens: int | None,
    num_beams: int | None,
    length_penalty: float | None,
    early_stopping: bool | str | None,
    use_cache: bool,
) -> Settings:
    """What was asked for, and for None what the configuration says.

    Raises ValueError, one sentence, for a setting that makes no sense.
    """
    if max_new_tokens is None:
        max_new_tokens = config.max_position_embeddings
        if config.max_length is not None:
            max_new_tokens = min(max_new_tokens, config.max_length - 1)
    num_beams = config.num_beams if num_beams is None else num_beams
    for name, value in (("max_new_tokens", max_new_tokens), ("num_beams", num_beams)):
        if type(value) is not int or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, but is {value!r}.")
    early_stopping = config.early_stopping if early_stopping is None else early_stopping
    if early_stopping not in (True, False, "never"):
        raise ValueError(
            f'early_stopping must be True, False or "never", but is {early_stopping!r}.'
        )
    return Settings(
        max_new_tokens,
        num_beams,
        config.length_penalty if length_penalty is None else length_penalty,
        early_stopping,
        use_cache,
        _as_ids(config.eos_token_id),
        config.banned_ids,
        config.forced_bos_token_id,
        _as_ids(config.forced_eos_token_id),
        config.renormalize_logits,
    )


def _as_ids(value: int | list[int] | None) -> tuple[int, ...]:
    return () if value is None else tuple(value) if isinstance(value, list) else (value,)
