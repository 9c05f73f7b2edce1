"""The two stacks of an encoder-decoder, and what leads from one to the other (article chapter 2).

source ids -> encoder -> memory -> keys and values for every decoder layer
target ids -> decoder, which looks at these -> vectors for the head
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npgpt.layers.multi_head import KeysValuesSaved
from npgpt.models.common import Params, Pass
from npgpt.models.transformer.config import TransformerConfig
from npgpt.models.transformer.embedding import (
    EmbeddingSaved,
    embedding_backward,
    embedding_forward,
)
from npgpt.models.transformer.layers import (
    DecoderLayerSaved,
    EncoderLayerSaved,
    KeysValues,
    decoder_layer_backward,
    decoder_layer_forward,
    encoder_layer_backward,
    encoder_layer_forward,
    kv_backward,
    kv_forward,
)
from npgpt.ops.mask import attention_mask_for, padding_mask

CrossKV = list[KeysValues]  # of every decoder layer


class EncoderSaved(NamedTuple):
    """What `encoder_backward` reads."""

    embed: EmbeddingSaved
    layers: list[EncoderLayerSaved]


class DecoderSaved(NamedTuple):
    """What `decoder_backward` reads."""

    embed: EmbeddingSaved
    layers: list[DecoderLayerSaved]


def encoder_forward(
    ids: np.ndarray,
    attention_mask: np.ndarray | None,
    params: Params,
    config: TransformerConfig,
    run: Pass,
) -> tuple[np.ndarray, EncoderSaved]:
    """Read the source: every token sees all others except padding.

    Args:
        ids: [..., S].
        attention_mask: None or [..., S], 0 for padding.

    Returns:
        memory [..., S, d], and what backward reads.
    """
    x, embed = embedding_forward(ids, 0, params, "encoder", config, run)
    mask, layers = source_mask(attention_mask), []
    for n in range(config.encoder_layers):
        x, saved = encoder_layer_forward(x, params, n, config, mask, run)
        if run.keep:
            layers.append(saved)
        del saved  # or it would still be there while the next layer runs
    return x, EncoderSaved(embed, layers)


def encoder_backward(
    dmemory: np.ndarray, saved: EncoderSaved, config: TransformerConfig, grads: Params, run: Pass
) -> None:
    """Puts the gradients of the encoder's parameters into `grads`."""
    dx = dmemory
    for n in reversed(range(config.encoder_layers)):
        dx = encoder_layer_backward(dx, saved.layers[n], n, grads, run)
    embedding_backward(dx, saved.embed, "encoder", config, grads, run)


def cross_forward(
    memory: np.ndarray, params: Params, config: TransformerConfig, run: Pass
) -> tuple[CrossKV, list[KeysValuesSaved]]:
    """Every decoder layer's own keys and values [..., H, S, d_h] of the memory [..., S, d].

    They do not depend on the target, so that they are computed once however long it grows.
    """
    made = [
        kv_forward(memory, params, _cross_name(n), config.decoder_attention_heads, run)
        for n in range(config.decoder_layers)
    ]
    return [kv for kv, _ in made], [saved for _, saved in made]


def cross_backward(
    dcross_kv: CrossKV, saved: list[KeysValuesSaved], grads: Params, run: Pass
) -> np.ndarray:
    """Gradient of the memory, the sum over all layers that look at it."""
    shares = [
        kv_backward(*dkv, saved[n], _cross_name(n), grads, run) for n, dkv in enumerate(dcross_kv)
    ]
    return np.sum(shares, axis=0)


def decoder_forward(
    ids: np.ndarray,
    cross_kv: CrossKV,
    masks: tuple[np.ndarray | None, np.ndarray | None],
    params: Params,
    config: TransformerConfig,
    run: Pass,
) -> tuple[np.ndarray, DecoderSaved]:
    """Write the target: each token sees the target up to itself, and the whole source.

    Args:
        ids: [..., T], behind those whose keys and values `run.kv` holds.
        cross_kv: the source, as `cross_forward` made it.
        masks: padding of the target and of the source, each None or [..., S].

    Returns:
        x [..., T, d], and what backward reads.
    """
    past, T = 0 if run.kv is None else run.kv.length, ids.shape[-1]
    seen = attention_mask_for(T, past + T, masks[0]), source_mask(masks[1])
    x, embed = embedding_forward(ids, past, params, "decoder", config, run)
    layers = []
    for n in range(config.decoder_layers):
        x, saved = decoder_layer_forward(x, cross_kv[n], params, n, config, seen, run)
        if run.keep:
            layers.append(saved)
        del saved
    if run.kv is not None:
        run.kv.advance(T)
    return x, DecoderSaved(embed, layers)


def decoder_backward(
    dx: np.ndarray, saved: DecoderSaved, config: TransformerConfig, grads: Params, run: Pass
) -> CrossKV:
    """Gradients of the source's keys and values; those of the parameters go to `grads`."""
    dcross_kv: CrossKV = []
    for n in reversed(range(config.decoder_layers)):
        dx, dkv = decoder_layer_backward(dx, saved.layers[n], n, grads, run)
        dcross_kv.insert(0, dkv)
    embedding_backward(dx, saved.embed, "decoder", config, grads, run)
    return dcross_kv


def source_mask(attention_mask: np.ndarray | None) -> np.ndarray:
    """What every token sees of the source: all but padding."""
    return np.ones((1, 1), bool) if attention_mask is None else padding_mask(attention_mask)


def _cross_name(n: int) -> str:
    return f"decoder.layers.{n}.encoder_attn"
