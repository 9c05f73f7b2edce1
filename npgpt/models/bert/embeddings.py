"""What BERT's layers read: word, token type and position vectors, added and normalised.

Article chapters 5 and 6; the token types, which of two texts a token belongs to, are BERT's own.
DistilBERT has none; RoBERTa counts positions in its own way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npgpt.models.bert.config import BERTConfig
from npgpt.models.common import Params, of, put
from npgpt.ops import dropout, layer_norm, lookup, position
from npgpt.ops.dropout import dropout_backward, dropout_forward
from npgpt.ops.layer_norm import layer_norm_backward, layer_norm_forward
from npgpt.ops.lookup import (
    check_ids,
    check_mask,
    check_rows,
    check_shape,
    lookup_backward,
    lookup_forward,
)
from npgpt.ops.mask import padding_mask
from npgpt.ops.position import position_backward, position_forward

WORDS = "embeddings.word_embeddings.weight"
POSITIONS = "embeddings.position_embeddings.weight"
TYPES = "embeddings.token_type_embeddings.weight"
NORM = "embeddings.LayerNorm"


class EmbeddingsSaved(NamedTuple):
    """What `embeddings_backward` reads."""

    words: lookup.Saved
    types: lookup.Saved | None  # None without token types
    positions: position.Saved
    norm: layer_norm.Saved
    dropout: dropout.Saved


def embeddings_forward(
    ids: np.ndarray,
    types: np.ndarray | None,
    params: Params,
    config: BERTConfig,
    rng: np.random.Generator | None,
) -> tuple[np.ndarray, EmbeddingsSaved]:
    """Three rows for each token: x = LayerNorm(words[id] + types[type] + positions[t]).

    Args:
        ids, types: [..., T] integers; None for a model without token types.
        rng: draws the dropout mask in training; None: no dropout.

    Returns:
        x [..., T, d], and what backward reads.

    Raises:
        ValueError: an id or a type without a row.
    """
    x, saved_words = lookup_forward(ids, params[WORDS])
    saved_types = None
    if types is not None:
        check_rows(types, params[TYPES], "token type")
        kinds, saved_types = lookup_forward(types, params[TYPES])
        x = x + kinds
    x, positions = position_forward(x, positions_of(ids, config), params[POSITIONS])
    x, norm = layer_norm_forward(x, *of(params, NORM), eps=config.layer_norm_eps)
    x, saved_dropout = dropout_forward(x, p=config.hidden_dropout_prob, rng=rng)
    return x, EmbeddingsSaved(saved_words, saved_types, positions, norm, saved_dropout)


def embeddings_backward(dx: np.ndarray, saved: EmbeddingsSaved, grads: Params) -> None:
    """Puts the gradients of the tables and the LayerNorm into `grads`.

    A word table that is the MLM head's too already has a gradient there; this one is added to it.
    The row of the padding token is no exception: it gets 0 where padding is masked and nothing is
    asked of it. (transformers leaves its lookup without a gradient in any case.)

    Args:
        dx: [..., T, d].
    """
    dx = dropout_backward(dx, saved.dropout)
    dx, *dnorm = layer_norm_backward(dx, saved.norm)
    put(grads, NORM, of=dnorm)
    dx, grads[POSITIONS] = position_backward(dx, saved.positions)
    if saved.types is not None:
        grads[TYPES] = lookup_backward(dx, saved.types)
    dwords = lookup_backward(dx, saved.words)
    grads[WORDS] = dwords + grads[WORDS] if WORDS in grads else dwords


def positions_of(ids: np.ndarray, config: BERTConfig) -> np.ndarray:
    """Each token's row in the position table: 0, 1, 2, … [T].

    RoBERTa's [..., T] begin behind the padding's own row, and count only what is not padding:

        padding, padding, a, b, c       with pad_token_id 1 at       1, 1, 2, 3, 4
    """
    if not config.family.counts_tokens:
        return np.arange(ids.shape[-1])
    real = ids != config.pad_token_id
    return config.first_position - 1 + np.cumsum(real, axis=-1) * real


def check_input(
    ids: Any, attention_mask: Any, token_type_ids: Any, config: BERTConfig
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """ids and token types as arrays, and the mask: every token sees all but padding.

    Raises ValueError for shapes that do not fit, token types that the model does not have, and
    texts longer than its context; the values are checked where they are looked up.
    """
    ids = check_ids(ids)
    length = int(positions_of(ids, config).max()) + 1 - config.first_position
    if length > config.context:
        raise ValueError(
            f"the text is {length} tokens long, but the model has positions for {config.context}; "
            "shorten it."
        )
    seen = np.ones_like(ids) if attention_mask is None else attention_mask
    mask = padding_mask(check_mask(seen, ids.shape))
    if not config.family.has_types:
        if token_type_ids is not None:
            raise ValueError(f"a {config.model_type} has no token types; leave them out.")
        return ids, None, mask
    types = np.zeros_like(ids) if token_type_ids is None else token_type_ids
    types = check_ids(types, "token_type_ids")
    check_shape("token_type_ids", types, ids.shape)
    return ids, types, mask
