"""One BERT layer: attention and feed-forward, each with its residual around it and the LayerNorm
behind the sum: post-norm, as in 2017 (article chapters 2 and 9)."""

from __future__ import annotations

from typing import NamedTuple

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
from npgpt.models.bert.config import BERTConfig
from npgpt.models.common import Observer, Params, station
from npgpt.ops import dropout, layer_norm
from npgpt.ops.dropout import dropout_backward, dropout_forward
from npgpt.ops.layer_norm import layer_norm_backward, layer_norm_forward


class LayerSaved(NamedTuple):
    """What `layer_backward` reads; `attn.probs[0, 11]` is the weight table of one head."""

    keys_values: KeysValuesSaved
    attn: QueryAttentionSaved
    attn_dropout: dropout.Saved
    attn_norm: layer_norm.Saved
    mlp: FeedForwardSaved
    mlp_dropout: dropout.Saved
    mlp_norm: layer_norm.Saved


def layer_forward(
    x: np.ndarray,
    params: Params,
    n: int,
    config: BERTConfig,
    mask: np.ndarray,
    rng: np.random.Generator | None = None,
    observe: Observer | None = None,
    flash: bool = False,
) -> tuple[np.ndarray, LayerSaved]:
    """Layer n: two sublayers; each reads x, adds its correction, and the sum is normalised.

        x = LayerNorm(x + attn(x))
        x = LayerNorm(x + mlp(x))

    Args:
        x: [..., T, d].
        params: the model's parameters; those named encoder.layer.n.… are used.
        mask: bool, broadcasts against [..., H, T, T]; True = may attend.
        rng, observe, flash: see `BERT.forward`.

    Returns:
        x [..., T, d], and what backward reads.
    """
    layer, eps, pdrop = f"encoder.layer.{n}.", config.layer_norm_eps, config.hidden_dropout_prob

    def pair(name: str) -> tuple[np.ndarray, np.ndarray]:
        return params[f"{layer}{name}.weight"], params[f"{layer}{name}.bias"]

    (k, v), keys_values = keys_values_forward(
        x,
        *pair("attention.self.key"),
        *pair("attention.self.value"),
        n_head=config.num_attention_heads,
    )
    correction, attn = query_attention_forward(
        x,
        k,
        v,
        *pair("attention.self.query"),
        *pair("attention.output.dense"),
        n_head=config.num_attention_heads,
        divisor=config.attention_divisor,
        mask=mask,
        pdrop=config.attention_probs_dropout_prob,
        rng=rng,
        flash=flash,
    )
    correction, attn_dropout = dropout_forward(correction, p=pdrop, rng=rng)
    if observe is not None and not flash:
        observe(layer + "attention.self.probs", attn.probs)
    station(observe, layer + "attention.output.dense", correction)
    x, attn_norm = layer_norm_forward(x + correction, *pair("attention.output.LayerNorm"), eps=eps)
    station(observe, layer + "attention.output.LayerNorm", x)

    correction, mlp = feed_forward_forward(
        x, *pair("intermediate.dense"), *pair("output.dense"), activation=config.hidden_act
    )
    correction, mlp_dropout = dropout_forward(correction, p=pdrop, rng=rng)
    station(observe, layer + "output.dense", correction)
    x, mlp_norm = layer_norm_forward(x + correction, *pair("output.LayerNorm"), eps=eps)
    station(observe, f"encoder.layer.{n}", x)
    return x, LayerSaved(keys_values, attn, attn_dropout, attn_norm, mlp, mlp_dropout, mlp_norm)


def layer_backward(dx: np.ndarray, saved: LayerSaved, n: int, grads: Params) -> np.ndarray:
    """Layer n in reverse: puts its parameters' gradients into `grads`, returns dx [..., T, d].

    Every gradient passes the LayerNorm first: unlike pre-norm, no way leads straight through all
    layers (article chapter 9). Behind it, at the "+", it goes both ways unchanged.
    """

    def put(name: str, dweight: np.ndarray, dbias: np.ndarray) -> None:
        grads[f"encoder.layer.{n}.{name}.weight"] = dweight
        grads[f"encoder.layer.{n}.{name}.bias"] = dbias

    dx, *dmlp_norm = layer_norm_backward(dx, saved.mlp_norm)
    dcorrection = dropout_backward(dx, saved.mlp_dropout)
    dthrough, *dmlp = feed_forward_backward(dcorrection, saved.mlp)
    dx = dx + dthrough
    put("intermediate.dense", *dmlp[:2])
    put("output.dense", *dmlp[2:])
    put("output.LayerNorm", *dmlp_norm)

    dx, *dattn_norm = layer_norm_backward(dx, saved.attn_norm)
    dcorrection = dropout_backward(dx, saved.attn_dropout)
    dthrough_q, dk, dv, *dattn = query_attention_backward(dcorrection, saved.attn)
    dthrough_kv, *dkeys_values = keys_values_backward(dk, dv, saved.keys_values)
    dx = dx + dthrough_q + dthrough_kv
    put("attention.self.query", *dattn[:2])
    put("attention.self.key", *dkeys_values[:2])
    put("attention.self.value", *dkeys_values[2:])
    put("attention.output.dense", *dattn[2:])
    put("attention.output.LayerNorm", *dattn_norm)
    return dx
