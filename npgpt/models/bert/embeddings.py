"""What BERT's layers read: word, token type and position vectors, added and normalised.

Article chapters 5 and 6; the token types, which of two texts a token belongs to, are BERT's own.
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
    types: lookup.Saved
    positions: position.Saved
    norm: layer_norm.Saved
    dropout: dropout.Saved


def embeddings_forward(
    ids: np.ndarray,
    types: np.ndarray,
    params: Params,
    config: BERTConfig,
    rng: np.random.Generator | None,
) -> tuple[np.ndarray, EmbeddingsSaved]:
    """Three rows for each token: x = LayerNorm(words[id] + types[type] + positions[t]).

    Args:
        ids, types: [..., T] integers.
        rng: draws the dropout mask in training; None: no dropout.

    Returns:
        x [..., T, d], and what backward reads.

    Raises:
        ValueError: an id or a type without a row.
    """
    words, saved_words = lookup_forward(ids, params[WORDS])
    check_rows(types, params[TYPES], "token type")
    kinds, saved_types = lookup_forward(types, params[TYPES])
    x, positions = position_forward(words + kinds, np.arange(ids.shape[-1]), params[POSITIONS])
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
    grads[TYPES] = lookup_backward(dx, saved.types)
    dwords = lookup_backward(dx, saved.words)
    grads[WORDS] = dwords + grads[WORDS] if WORDS in grads else dwords


def check_input(
    ids: Any, attention_mask: Any, token_type_ids: Any, context: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ids and token types as arrays, and the mask: every token sees all but padding.

    Raises ValueError for shapes that do not fit and texts longer than `context`; the values are
    checked where they are looked up.
    """
    ids = check_ids(ids)
    if ids.shape[-1] > context:
        raise ValueError(
            f"the text is {ids.shape[-1]} tokens long, but the model has positions for {context}; "
            "shorten it."
        )
    types = np.zeros_like(ids) if token_type_ids is None else token_type_ids
    seen = np.ones_like(ids) if attention_mask is None else attention_mask
    types = check_ids(types, "token_type_ids")
    check_shape("token_type_ids", types, ids.shape)
    return ids, types, padding_mask(check_mask(seen, ids.shape))
