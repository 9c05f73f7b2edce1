"""One encoder layer and one decoder layer of 2017: each sublayer is followed by Add & Norm
(article chapter 2).

First what the layers are made of: attention, feed-forward, Add & Norm. Each function takes the
parameters called `name` out of one flat dict, and its backward puts their gradients into another.
Names are Hugging Face's: `self_attn`, `encoder_attn` for cross-attention, `fc1` and `fc2`,
`final_layer_norm` after these.
"""

from __future__ import annotations

import math
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
from npgpt.models.common import Params, Pass, of, put
from npgpt.models.transformer.config import TransformerConfig
from npgpt.ops import dropout, layer_norm
from npgpt.ops.dropout import dropout_backward, dropout_forward
from npgpt.ops.layer_norm import layer_norm_backward, layer_norm_forward

EPS = 1e-5  # of every LayerNorm
FFN = {"c_fc": "fc1", "act": "activation_fn"}  # stations of the feed-forward network

KeysValues = tuple[np.ndarray, np.ndarray]  # [..., H, S, d_h] each
AddNormSaved = tuple[dropout.Saved, layer_norm.Saved]


def kv_forward(
    memory: np.ndarray, params: Params, name: str, n_head: int, run: Pass
) -> tuple[KeysValues, KeysValuesSaved]:
    """Keys and values of a text [..., S, d], by `name`'s projections; see `keys_values_forward`."""
    projections = of(params, f"{name}.k_proj", f"{name}.v_proj")
    return keys_values_forward(memory, *projections, n_head=n_head, station=run.within(name))


def kv_backward(
    dk: np.ndarray, dv: np.ndarray, saved: KeysValuesSaved, name: str, grads: Params, run: Pass
) -> np.ndarray:
    """Gradient of the text [..., S, d] that the keys and values were made of."""
    dmemory, *dprojections = keys_values_backward(dk, dv, saved, run.within(name))
    put(grads, f"{name}.k_proj", f"{name}.v_proj", of=dprojections)
    return dmemory


def attend_forward(
    x: np.ndarray,
    kv: KeysValues,
    params: Params,
    name: str,
    config: TransformerConfig,
    mask: np.ndarray,
    run: Pass,
) -> tuple[np.ndarray, QueryAttentionSaved]:
    """What x [..., T, d] sees in keys and values, its own or the source's: [..., T, d]."""
    n_head = kv[0].shape[-3]
    y, saved = query_attention_forward(
        x,
        *kv,
        *of(params, f"{name}.q_proj", f"{name}.out_proj"),
        n_head=n_head,
        divisor=math.sqrt(config.d_model // n_head),
        mask=mask,
        pdrop=config.attention_dropout,
        rng=run.rng,
        flash=run.flash,
        station=run.within(name),
    )
    return run.station(name, y), saved


def attend_backward(
    dy: np.ndarray, saved: QueryAttentionSaved, name: str, grads: Params, run: Pass
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of x, k and v."""
    dy = run.station(name, dy)
    dx, dk, dv, *dprojections = query_attention_backward(dy, saved, run.within(name))
    put(grads, f"{name}.q_proj", f"{name}.out_proj", of=dprojections)
    return dx, dk, dv


def ffn_forward(
    x: np.ndarray, params: Params, layer: str, config: TransformerConfig, run: Pass
) -> tuple[np.ndarray, FeedForwardSaved]:
    """fc1, the activation, fc2: [..., d]."""
    weights = of(params, f"{layer}.fc1", f"{layer}.fc2")
    station = run.within(layer, **FFN)
    y, saved = feed_forward_forward(x, *weights, activation=config.activation, station=station)
    return run.station(f"{layer}.fc2", y), saved


def ffn_backward(
    dy: np.ndarray, saved: FeedForwardSaved, layer: str, grads: Params, run: Pass
) -> np.ndarray:
    """Gradient of x."""
    dy = run.station(f"{layer}.fc2", dy)
    dx, *dffn = feed_forward_backward(dy, saved, run.within(layer, **FFN))
    put(grads, f"{layer}.fc1", f"{layer}.fc2", of=dffn)
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
    return run.station(_station(name), x), (dropped, normed)


def add_norm_backward(
    dx: np.ndarray, saved: AddNormSaved, name: str, grads: Params, run: Pass
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of x and of the correction, which are equal where dropout silenced nothing."""
    dropped, normed = saved
    dx, *dnorm = layer_norm_backward(run.station(_station(name), dx), normed)
    put(grads, name, of=dnorm)
    return dx, dropout_backward(dx, dropped)


def _station(norm: str) -> str:
    """What the output of a norm is called: that of the last one is the layer's."""
    return norm.removesuffix(".final_layer_norm")


class EncoderLayerSaved(NamedTuple):
    """What `encoder_layer_backward` reads."""

    keys_values: KeysValuesSaved
    self_attn: QueryAttentionSaved
    self_attn_norm: AddNormSaved
    ffn: FeedForwardSaved
    ffn_norm: AddNormSaved


class DecoderLayerSaved(NamedTuple):
    """What `decoder_layer_backward` reads; `encoder_attn.probs`: who looked where in the source."""

    keys_values: KeysValuesSaved
    self_attn: QueryAttentionSaved
    self_attn_norm: AddNormSaved
    encoder_attn: QueryAttentionSaved
    encoder_attn_norm: AddNormSaved
    ffn: FeedForwardSaved
    ffn_norm: AddNormSaved


def encoder_layer_forward(
    x: np.ndarray,
    params: Params,
    n: int,
    config: TransformerConfig,
    mask: np.ndarray,
    run: Pass,
) -> tuple[np.ndarray, EncoderLayerSaved]:
    """Layer n of the encoder: every token looks at the whole source, then thinks for itself.

        x = LN(x + self_attn(x))
        x = LN(x + ffn(x))

    Args:
        x: [..., S, d].
        params: the model's parameters; those named encoder.layers.n.… are used.
        mask: bool, broadcasts against [..., H, S, S].

    Returns:
        x [..., S, d], and what backward reads.
    """
    layer = f"encoder.layers.{n}"
    attn, n_head = f"{layer}.self_attn", config.encoder_attention_heads

    kv, keys_values = kv_forward(x, params, attn, n_head, run)
    correction, self_attn = attend_forward(x, kv, params, attn, config, mask, run)
    x, attn_norm = add_norm_forward(x, correction, params, f"{attn}_layer_norm", config, run)

    correction, ffn = ffn_forward(x, params, layer, config, run)
    x, ffn_norm = add_norm_forward(x, correction, params, f"{layer}.final_layer_norm", config, run)
    return x, EncoderLayerSaved(keys_values, self_attn, attn_norm, ffn, ffn_norm)


def encoder_layer_backward(
    dx: np.ndarray, saved: EncoderLayerSaved, n: int, grads: Params, run: Pass
) -> np.ndarray:
    """Layer n in reverse: puts its parameters' gradients into `grads`, returns dx [..., S, d].

    At each "+" the gradient goes straight on, and through the sublayer, whose share is added; in
    self-attention x is both what looks and what is looked at, so it gets two shares.
    """
    layer = f"encoder.layers.{n}"
    attn = f"{layer}.self_attn"

    dx, dcorrection = add_norm_backward(dx, saved.ffn_norm, f"{layer}.final_layer_norm", grads, run)
    dx = dx + ffn_backward(dcorrection, saved.ffn, layer, grads, run)

    dx, dcorrection = add_norm_backward(dx, saved.self_attn_norm, f"{attn}_layer_norm", grads, run)
    through, dk, dv = attend_backward(dcorrection, saved.self_attn, attn, grads, run)
    return dx + through + kv_backward(dk, dv, saved.keys_values, attn, grads, run)


def decoder_layer_forward(
    x: np.ndarray,
    cross_kv: KeysValues,
    params: Params,
    n: int,
    config: TransformerConfig,
    masks: tuple[np.ndarray, np.ndarray],
    run: Pass,
) -> tuple[np.ndarray, DecoderLayerSaved]:
    """Layer n of the decoder: look back at the target, look at the source, think.

        x = LN(x + self_attn(x))
        x = LN(x + encoder_attn(x, memory))
        x = LN(x + ffn(x))

    Args:
        x: [..., T, d].
        cross_kv: this layer's keys and values of the source [..., H, S, d_h].
        params: the model's parameters; those named decoder.layers.n.… are used.
        masks: bool, over the target and over the source; they broadcast against [..., H, T, T] and
            [..., H, T, S].

    Returns:
        x [..., T, d], and what backward reads.
    """
    layer, n_head = f"decoder.layers.{n}", config.decoder_attention_heads
    attn, cross = f"{layer}.self_attn", f"{layer}.encoder_attn"

    kv, keys_values = kv_forward(x, params, attn, n_head, run)
    if (extend_kv := run.extend_kv(n)) is not None:
        kv = extend_kv(*kv)  # [..., H, S, d_h], earlier tokens first
    correction, self_attn = attend_forward(x, kv, params, attn, config, masks[0], run)
    x, attn_norm = add_norm_forward(x, correction, params, f"{attn}_layer_norm", config, run)

    correction, crossed = attend_forward(x, cross_kv, params, cross, config, masks[1], run)
    x, cross_norm = add_norm_forward(x, correction, params, f"{cross}_layer_norm", config, run)

    correction, ffn = ffn_forward(x, params, layer, config, run)
    x, ffn_norm = add_norm_forward(x, correction, params, f"{layer}.final_layer_norm", config, run)
    saved = (keys_values, self_attn, attn_norm, crossed, cross_norm, ffn, ffn_norm)
    return x, DecoderLayerSaved(*saved)


def decoder_layer_backward(
    dx: np.ndarray, saved: DecoderLayerSaved, n: int, grads: Params, run: Pass
) -> tuple[np.ndarray, KeysValues]:
    """Layer n in reverse: dx [..., T, d], and the gradients of its keys and values of the source.

    These lead back to the encoder through projections that are not of this layer's input, so their
    gradients are for the model to collect.
    """
    layer = f"decoder.layers.{n}"
    attn, cross = f"{layer}.self_attn", f"{layer}.encoder_attn"

    dx, dcorrection = add_norm_backward(dx, saved.ffn_norm, f"{layer}.final_layer_norm", grads, run)
    dx = dx + ffn_backward(dcorrection, saved.ffn, layer, grads, run)

    dx, dcorrection = add_norm_backward(
        dx, saved.encoder_attn_norm, f"{cross}_layer_norm", grads, run
    )
    through, *dcross_kv = attend_backward(dcorrection, saved.encoder_attn, cross, grads, run)
    dx = dx + through

    dx, dcorrection = add_norm_backward(dx, saved.self_attn_norm, f"{attn}_layer_norm", grads, run)
    through, dk, dv = attend_backward(dcorrection, saved.self_attn, attn, grads, run)
    dx = dx + through + kv_backward(dk, dv, saved.keys_values, attn, grads, run)
    return dx, (dcross_kv[0], dcross_kv[1])
