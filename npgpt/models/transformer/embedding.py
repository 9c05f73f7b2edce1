"""What enters each side of an encoder-decoder: token vectors, scaled, and their positions
(article chapters 2, 5 and 6).

    x = table[ids] √d + sinusoids                       the paper, Marian
    x = LN(table[ids] + learned positions)              BART
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npgpt.models.common import Params, Pass, of, put
from npgpt.models.transformer.config import FIRST_POSITION, TransformerConfig
from npgpt.models.transformer.layers import EPS
from npgpt.ops import dropout, layer_norm, lookup, position
from npgpt.ops.dropout import dropout_backward, dropout_forward
from npgpt.ops.layer_norm import layer_norm_backward, layer_norm_forward
from npgpt.ops.lookup import lookup_backward, lookup_forward
from npgpt.ops.position import position_backward, position_forward
from npgpt.ops.sinusoids import sinusoids, sinusoids_in_halves


class EmbeddingSaved(NamedTuple):
    """What `embedding_backward` reads; a side with sinusoids has no positions and no norm."""

    tokens: lookup.Saved
    positions: position.Saved | None
    norm: layer_norm.Saved | None
    dropout: dropout.Saved


def embedding_forward(
    ids: np.ndarray, past: int, params: Params, side: str, config: TransformerConfig, run: Pass
) -> tuple[np.ndarray, EmbeddingSaved]:
    """Token vectors with their positions.

    Args:
        ids: [..., T], behind `past` tokens that were read before.
        side: "encoder" or "decoder".

    Returns:
        x [..., T, d], and what backward reads.

    Raises:
        ValueError: an id without a row; more tokens than there are learned positions.
    """
    table = config.source_table if side == "encoder" else config.target_table
    x, tokens = lookup_forward(ids, params[table])  # [..., T] -> [..., T, d]
    x = x * config.embedding_scale
    end = past + ids.shape[-1]
    saved_positions = saved_norm = None
    if config.learned_positions:
        rows = params[f"{side}.embed_positions.weight"]
        _check_length(end, len(rows) - FIRST_POSITION, side)
        places = np.arange(past, end) + FIRST_POSITION
        x, saved_positions = position_forward(x, places, rows)
        norm = of(params, f"{side}.layernorm_embedding")
        x, saved_norm = layer_norm_forward(x, *norm, eps=EPS)
    else:
        make = sinusoids_in_halves if config.model_type == "marian" else sinusoids
        x = x + make(np.arange(past, end), config.d_model).astype(x.dtype)
    x, dropped = dropout_forward(x, p=config.dropout, rng=run.rng)
    return run.station(f"{side}.embed", x), EmbeddingSaved(
        tokens, saved_positions, saved_norm, dropped
    )


def embedding_backward(
    dx: np.ndarray,
    saved: EmbeddingSaved,
    side: str,
    config: TransformerConfig,
    grads: Params,
    run: Pass,
) -> None:
    """Puts the gradients of token table, positions and norm into `grads`.

    The table may serve the other side and the head as well, so its gradient is added to what is
    there. The row of the padding token gets none, as Hugging Face has it: Marian starts its targets
    with that token and keeps its vector at 0.
    """
    dx = dropout_backward(run.station(f"{side}.embed", dx), saved.dropout)
    if saved.norm is not None and saved.positions is not None:
        dx, *dnorm = layer_norm_backward(dx, saved.norm)
        put(grads, f"{side}.layernorm_embedding", of=dnorm)
        dx, grads[f"{side}.embed_positions.weight"] = position_backward(dx, saved.positions)
    dtable = lookup_backward(dx * config.embedding_scale, saved.tokens)
    if config.pad_token_id is not None:
        dtable[config.pad_token_id : config.pad_token_id + 1] = 0
    table = config.source_table if side == "encoder" else config.target_table
    grads[table] = grads[table] + dtable if table in grads else dtable


def _check_length(end: int, positions: int, side: str) -> None:
    if end > positions:
        text = "source" if side == "encoder" else "target"
        raise ValueError(
            f"the {text} is {end} tokens long, but the model has positions for {positions}; "
            "shorten it."
        )
