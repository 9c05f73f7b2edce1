"""One encoder layer and one decoder layer of 2017: each sublayer is followed by Add & Norm
(article chapter 2).

Names are Hugging Face's: `self_attn`, `encoder_attn` for cross-attention, `fc1` and `fc2`,
`final_layer_norm` after these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from npgpt.layers.feed_forward import FeedForwardSaved
from npgpt.layers.multi_head import KeysValuesSaved, QueryAttentionSaved
from npgpt.models.common import Params, Pass, station
from npgpt.models.transformer.config import TransformerConfig
from npgpt.models.transformer.sublayers import (
    AddNormSaved,
    KeysValues,
    add_norm_backward,
    add_norm_forward,
    ffn_backward,
    ffn_forward,
    looked_at_backward,
    looked_at_forward,
    looking_backward,
    looking_forward,
)

ExtendKV = Callable[[np.ndarray, np.ndarray], KeysValues]


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

    kv, keys_values = looked_at_forward(x, params, attn, n_head)
    correction, self_attn = looking_forward(x, kv, params, attn, config, mask, run)
    x, attn_norm = add_norm_forward(x, correction, params, f"{attn}_layer_norm", config, run)
    station(run.observe, f"{attn}_layer_norm", x)

    correction, ffn = ffn_forward(x, params, layer, config, run)
    x, ffn_norm = add_norm_forward(x, correction, params, f"{layer}.final_layer_norm", config, run)
    station(run.observe, layer, x)
    return x, EncoderLayerSaved(keys_values, self_attn, attn_norm, ffn, ffn_norm)


def encoder_layer_backward(
    dx: np.ndarray, saved: EncoderLayerSaved, n: int, grads: Params
) -> np.ndarray:
    """Layer n in reverse: puts its parameters' gradients into `grads`, returns dx [..., S, d].

    At each "+" the gradient goes straight on, and through the sublayer, whose share is added; in
    self-attention x was looked with and looked at.
    """
    layer = f"encoder.layers.{n}"
    attn = f"{layer}.self_attn"

    dx, dcorrection = add_norm_backward(dx, saved.ffn_norm, f"{layer}.final_layer_norm", grads)
    dx = dx + ffn_backward(dcorrection, saved.ffn, layer, grads)

    dx, dcorrection = add_norm_backward(dx, saved.self_attn_norm, f"{attn}_layer_norm", grads)
    through, dk, dv = looking_backward(dcorrection, saved.self_attn, attn, grads)
    return dx + through + looked_at_backward(dk, dv, saved.keys_values, attn, grads)


def decoder_layer_forward(
    x: np.ndarray,
    cross_kv: KeysValues,
    params: Params,
    n: int,
    config: TransformerConfig,
    masks: tuple[np.ndarray, np.ndarray],
    extend_kv: ExtendKV | None,
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
        extend_kv: puts new keys and values behind those of earlier tokens, see `KVCache.extend`.

    Returns:
        x [..., T, d], and what backward reads.
    """
    layer, n_head = f"decoder.layers.{n}", config.decoder_attention_heads
    attn, cross = f"{layer}.self_attn", f"{layer}.encoder_attn"

    kv, keys_values = looked_at_forward(x, params, attn, n_head)
    kv = kv if extend_kv is None else extend_kv(*kv)
    correction, self_attn = looking_forward(x, kv, params, attn, config, masks[0], run)
    x, attn_norm = add_norm_forward(x, correction, params, f"{attn}_layer_norm", config, run)
    station(run.observe, f"{attn}_layer_norm", x)

    correction, crossed = looking_forward(x, cross_kv, params, cross, config, masks[1], run)
    x, cross_norm = add_norm_forward(x, correction, params, f"{cross}_layer_norm", config, run)
    station(run.observe, f"{cross}_layer_norm", x)

    correction, ffn = ffn_forward(x, params, layer, config, run)
    x, ffn_norm = add_norm_forward(x, correction, params, f"{layer}.final_layer_norm", config, run)
    station(run.observe, layer, x)
    saved = (keys_values, self_attn, attn_norm, crossed, cross_norm, ffn, ffn_norm)
    return x, DecoderLayerSaved(*saved)


def decoder_layer_backward(
    dx: np.ndarray, saved: DecoderLayerSaved, n: int, grads: Params
) -> tuple[np.ndarray, KeysValues]:
    """Layer n in reverse: dx [..., T, d], and the gradients of its keys and values of the source.

    These lead back to the encoder through projections that are not of this layer's input, so their
    gradients are for the model to collect.
    """
    layer = f"decoder.layers.{n}"
    attn, cross = f"{layer}.self_attn", f"{layer}.encoder_attn"

    dx, dcorrection = add_norm_backward(dx, saved.ffn_norm, f"{layer}.final_layer_norm", grads)
    dx = dx + ffn_backward(dcorrection, saved.ffn, layer, grads)

    dx, dcorrection = add_norm_backward(dx, saved.encoder_attn_norm, f"{cross}_layer_norm", grads)
    through, *dcross_kv = looking_backward(dcorrection, saved.encoder_attn, cross, grads)
    dx = dx + through

    dx, dcorrection = add_norm_backward(dx, saved.self_attn_norm, f"{attn}_layer_norm", grads)
    through, dk, dv = looking_backward(dcorrection, saved.self_attn, attn, grads)
    dx = dx + through + looked_at_backward(dk, dv, saved.keys_values, attn, grads)
    return dx, (dcross_kv[0], dcross_kv[1])
