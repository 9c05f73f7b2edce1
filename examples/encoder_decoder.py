"""A layer of each side of npgpt's encoder-decoder, with random weights (article chapter 2).

An encoder-only and a decoder-only model are made of the encoder's layer: the mask tells them apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npgpt.models.common import Pass
from npgpt.models.transformer.config import TransformerConfig, init_params
from npgpt.models.transformer.layers import (
    DecoderLayerSaved,
    EncoderLayerSaved,
    attend_forward,
    decoder_layer_forward,
    encoder_layer_forward,
)
from npgpt.models.transformer.model import Transformer
from npgpt.models.transformer.stacks import cross_forward
from npgpt.ops.mask import causal_mask


def one_layer_each(rng: np.random.Generator, **sizes: Any) -> Transformer:
    """The paper's base model, or one of other sizes, cut down to a layer of each side; float64."""
    config = TransformerConfig(encoder_layers=1, decoder_layers=1, dropout=0.0, **sizes)
    return Transformer(config, init_params(config, rng, np.float64))


def encoder_layer(
    model: Transformer, x: np.ndarray, mask: np.ndarray | None = None
) -> tuple[np.ndarray, EncoderLayerSaved]:
    """Self-attention and FFN: [S, d] -> [S, d]; without a mask every position sees all."""
    everything = np.ones((len(x), len(x)), bool)
    seen = everything if mask is None else mask
    return encoder_layer_forward(x, model.params, 0, model.config, seen, Pass())


def decoder_layer(
    model: Transformer, x: np.ndarray, memory: np.ndarray
) -> tuple[np.ndarray, DecoderLayerSaved]:
    """Causal self-attention, cross-attention to the encoder's output, FFN: [T, d] -> [T, d]."""
    (cross_kv,), _ = cross_forward(memory, model.params, model.config, Pass())
    masks = causal_mask(len(x), len(x)), np.ones((len(x), len(memory)), bool)
    return decoder_layer_forward(x, cross_kv, model.params, 0, model.config, masks, Pass())


def cross_attention(model: Transformer, x: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """The middle sublayer by itself: Q from x [T, d], K and V from memory [S, d]."""
    (cross_kv,), _ = cross_forward(memory, model.params, model.config, Pass())
    everything, name = np.ones((len(x), len(memory)), bool), "decoder.layers.0.encoder_attn"
    args = (cross_kv, model.params, name, model.config, everything, Pass())
    return attend_forward(x, *args)[0]
