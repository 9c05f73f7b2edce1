"""What the layers of an encoder-decoder are made of: attention, feed-forward, Add & Norm.

Here names meet parameters: each function takes the parameters called `name` out of one flat dict,
and its backward puts their gradients into another.
"""

from __future__ import annotations

import math

import numpy as np

from npgpt.layers.feed_forward import (
    FeedForwardSaved,
    feed_forward_backward,
    feed_forward_forward,
)
from npgpt.layers.multi_head import (
    KeysValuesSaved,
    QueryAttentionSaved,
    keys_values_backward,
    keys_values_forward,
    query_attention_backward,
    query_attention_forward,
)
from npgpt.models.common import Params, Pass, of, put, station
from npgpt.models.transformer.config import TransformerConfig
from npgpt.ops import dropout, layer_norm
from npgpt.ops.dropout import dropout_backward, dropout_forward
from npgpt.ops.layer_norm import layer_norm_backward, layer_norm_forward

EPS = 1e-5  # of every LayerNorm

KeysValues = tuple[np.ndarray, np.ndarray]  # [..., H, S, d_h] each
AddNormSaved = tuple[dropout.Saved, layer_norm.Saved]


def looked_at_forward(
    memory: np.ndarray, params: Params, name: str, n_head: int
) -> tuple[KeysValues, KeysValuesSaved]:
    """Keys and values of a text [..., S, d], by `name`'s projections; see `keys_values_forward`."""
    k_proj, v_proj = of(params, f"{name}.k_proj"), of(params, f"{name}.v_proj")
    return keys_values_forward(memory, *k_proj, *v_proj, n_head=n_head)


def looked_at_backward(
    dk: np.ndarray, dv: np.ndarray, saved: KeysValuesSaved, name: str, grads: Params
) -> np.ndarray:
    """Gradient of the text [..., S, d] that the keys and values were made of."""
    dmemory, *dprojections = keys_values_backward(dk, dv, saved)
    put(grads, f"{name}.k_proj", *dprojections[:2])
    put(grads, f"{name}.v_proj", *dprojections[2:])
    return dmemory


def looking_forward(
    x: np.ndarray,
    kv: KeysValues,
    params: Params,
    name: str,
    config: TransformerConfig,
    mask: np.ndarray,
    run: Pass,
) -> tuple[np.ndarray, QueryAttentionSaved]:
    """What x [..., T, d] sees in the keys and values, whoever's they are: [..., T, d]."""
    n_head = kv[0].shape[-3]
    y, saved = query_attention_forward(
        x,
        *kv,
        *of(params, f"{name}.q_proj"),
        *of(params, f"{name}.out_proj"),
        n_head=n_head,
        divisor=math.sqrt(config.d_model // n_head),
        mask=mask,
        pdrop=config.attention_dropout,
        rng=run.rng,
        flash=run.flash,
    )
    if run.observe is not None and not run.flash:
        run.observe(f"{name}.probs", saved.probs)
    station(run.observe, name, y)
    return y, saved


def looking_backward(
    dy: np.ndarray, saved: QueryAttentionSaved, name: str, grads: Params
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of x, k and v."""
    dx, dk, dv, *dprojections = query_attention_backward(dy, saved)
    put(grads, f"{name}.q_proj", *dprojections[:2])
    put(grads, f"{name}.out_proj", *dprojections[2:])
    return dx, dk, dv


def ffn_forward(
    x: np.ndarray, params: Params, layer: str, config: TransformerConfig, run: Pass
) -> tuple[np.ndarray, FeedForwardSaved]:
    """fc1, the activation, fc2: [..., d]."""
    fc1, fc2 = of(params, f"{layer}.fc1"), of(params, f"{layer}.fc2")
    y, saved = feed_forward_forward(x, *fc1, *fc2, activation=config.activation)
    station(run.observe, f"{layer}.fc2", y)
    return y, saved


def ffn_backward(dy: np.ndarray, saved: FeedForwardSaved, layer: str, grads: Params) -> np.ndarray:
    """Gradient of x."""
    dx, *dffn = feed_forward_backward(dy, saved)
    put(grads, f"{layer}.fc1", *dffn[:2])
    put(grads, f"{layer}.fc2", *dffn[2:])
    return dx


def add_norm_forward(
    x: np.ndarray,
    correction: np.ndarray,
    params: Params,
    name: str,
    config: TransformerConfig,
    run: Pass,
) -> tuple[np.ndarray, AddNormSaved]:
    """Post-norm: LN(x + correction). Article 2, 9.

    Only the normed sum goes on, so that no path leads from the last layer to the first without
    passing a norm, as it does in GPT-2.
    """
    correction, dropped = dropout_forward(correction, p=config.dropout, rng=run.rng)
    x, normed = layer_norm_forward(x + correction, *of(params, name), eps=EPS)
    return x, (dropped, normed)


def add_norm_backward(
    dx: np.ndarray, saved: AddNormSaved, name: str, grads: Params
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of x and of the correction: the same, but for what dropout silenced."""
    dropped, normed = saved
    dx, dweight, dbias = layer_norm_backward(dx, normed)
    put(grads, name, dweight, dbias)
    return dx, dropout_backward(dx, dropped)
