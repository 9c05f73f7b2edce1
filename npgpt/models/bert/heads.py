"""What reads BERT's last hidden states: the head that guesses masked tokens, and the pooler.

A checkpoint may lack either. Leaves out the next-sentence classifier behind the pooler.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npgpt.models.bert.config import BERTConfig
from npgpt.models.common import Params, Pass, of, put
from npgpt.ops import layer_norm, linear
from npgpt.ops.activation import ACTIVATIONS, tanh_backward, tanh_forward
from npgpt.ops.layer_norm import layer_norm_backward, layer_norm_forward
from npgpt.ops.linear import linear_backward, linear_forward

POOLER = "pooler.dense"


class MLMHeadSaved(NamedTuple):
    """What `mlm_head_backward` reads."""

    dense: linear.Saved
    saved_activation: Any
    norm: layer_norm.Saved
    decoder: linear.Saved


def mlm_head_forward(
    x: np.ndarray, params: Params, config: BERTConfig
) -> tuple[np.ndarray, MLMHeadSaved]:
    """Score every token of the vocabulary at every position. Article chapter 3, 10.

        logits = LayerNorm(activation(x W + b)) tableᵀ + bias

    The table is the word embeddings themselves where the two are tied, as they are in BERT.

    Args:
        x: hidden states [..., d].

    Returns:
        logits [..., V], and what backward reads.
    """
    (forward, _), family = ACTIVATIONS[config.head_act], config.family
    x, dense = linear_forward(x, *of(params, family.transform))
    x, saved_activation = forward(x)
    x, norm = layer_norm_forward(x, *of(params, family.transform_norm), eps=config.layer_norm_eps)
    table = params[decoder_name(config)]
    logits, decoder = linear_forward(x, table.T, params[family.bias])
    return logits, MLMHeadSaved(dense, saved_activation, norm, decoder)


def mlm_head_backward(
    dlogits: np.ndarray, saved: MLMHeadSaved, config: BERTConfig, grads: Params
) -> np.ndarray:
    """Puts the head's gradients into `grads`, that of a tied table too; returns dx [..., d].

    Args:
        dlogits: [..., V].
    """
    (_, backward), family = ACTIVATIONS[config.head_act], config.family
    dx, dtable, grads[family.bias] = linear_backward(dlogits, saved.decoder)
    grads[decoder_name(config)] = dtable.T
    dx, *dnorm = layer_norm_backward(dx, saved.norm)
    put(grads, family.transform_norm, of=dnorm)
    dx = backward(dx, saved.saved_activation)
    dx, *ddense = linear_backward(dx, saved.dense)
    put(grads, family.transform, of=ddense)
    return dx


def decoder_name(config: BERTConfig) -> str:
    """The parameter that holds the MLM head's table [V, d]."""
    if config.tie_word_embeddings:
        return "embeddings.word_embeddings.weight"
    return f"{config.family.decoder}.weight"


PoolerSaved = tuple[linear.Saved, np.ndarray, tuple[int, ...]]  # linear, tanh, shape of x


def pooler_forward(x: np.ndarray, params: Params, run: Pass) -> tuple[np.ndarray, PoolerSaved]:
    """One vector for a whole text: that of its first token, [CLS], once more transformed.

        pooled = tanh(x_0 W + b)

    Args:
        x: hidden states [..., T, d].

    Returns:
        pooled [..., d], and what backward reads.
    """
    first, dense = linear_forward(x[..., 0, :], *of(params, POOLER))
    pooled = run.station("pooler", tanh_forward(first)[0])
    return pooled, (dense, pooled, x.shape)


def pooler_backward(dpooled: np.ndarray, saved: PoolerSaved, grads: Params) -> np.ndarray:
    """Puts the pooler's gradients into `grads`; returns dx [..., T, d], 0 beyond the first token.

    Args:
        dpooled: [..., d].
    """
    dense, saved_tanh, shape = saved
    dfirst = tanh_backward(dpooled, saved_tanh)
    dfirst, *ddense = linear_backward(dfirst, dense)
    put(grads, POOLER, of=ddense)
    dx = np.zeros(shape, dfirst.dtype)
    dx[..., 0, :] = dfirst
    return dx


class HeadsSaved(NamedTuple):
    """What `heads_backward` reads; None for a head that the model does not have."""

    pooler: PoolerSaved | None
    mlm_head: MLMHeadSaved | None


def heads_forward(
    x: np.ndarray, params: Params, config: BERTConfig, run: Pass
) -> tuple[np.ndarray | None, np.ndarray | None, HeadsSaved]:
    """Pooled vector [..., d] and logits [..., T, V], as far as there are parameters for them.

    Args:
        x: hidden states [..., T, d].
    """
    pooled = logits = pooler = mlm_head = None
    if "pooler.dense.weight" in params:
        pooled, pooler = pooler_forward(x, params, run)
    if config.family.bias in params:
        logits, mlm_head = mlm_head_forward(x, params, config)
        logits = run.station("logits", logits)
    return pooled, logits, HeadsSaved(pooler, mlm_head)


def heads_backward(
    dpooled: np.ndarray | None,
    dlogits: np.ndarray | None,
    saved: HeadsSaved,
    config: BERTConfig,
    grads: Params,
    run: Pass,
) -> np.ndarray | float:
    """What the given gradients mean for the hidden states: dx [..., T, d], or 0.0 without any.

    Raises ValueError for the gradient of an output that there was not.
    """
    dx: np.ndarray | float = 0.0
    if dlogits is not None:
        if saved.mlm_head is None:
            raise ValueError("dlogits is given, but this BERT has no MLM head.")
        dlogits = run.station("logits", dlogits)
        dx = dx + mlm_head_backward(dlogits, saved.mlm_head, config, grads)
    if dpooled is not None:
        if saved.pooler is None:
            raise ValueError("dpooled is given, but this BERT has no pooler.")
        dx = dx + pooler_backward(run.station("pooler", dpooled), saved.pooler, grads)
    return dx
