"""One post-norm layer with random weights, which an encoder, a decoder or both can be made of."""

from __future__ import annotations

import math

import numpy as np

from npgpt.layers.feed_forward import feed_forward_forward
from npgpt.layers.multi_head import (
    KeysValuesSaved,
    QueryAttentionSaved,
    keys_values_backward,
    keys_values_forward,
    query_attention_backward,
    query_attention_forward,
)
from npgpt.ops.cross_entropy import IGNORE_INDEX, cross_entropy_forward
from npgpt.ops.layer_norm import layer_norm_forward
from npgpt.ops.lm_head import lm_head_forward
from npgpt.ops.lookup import lookup_forward
from npgpt.ops.mask import causal_mask
from npgpt.ops.position import position_forward

ENGLISH = ["[MASK]", "<s>", "</s>", "the", "cat", "dog", "sat", "on", "mat"]
VOCABULARY = [*ENGLISH, "猫", "狗", "坐", "在", "垫子", "上"]
V, T, d, H, F = len(VOCABULARY), 6, 32, 4, 64
EVERYTHING = np.ones((T, T), bool)
Weights = list[np.ndarray]

rng = np.random.default_rng(2017)
WORDS, POSITIONS = rng.normal(0, 1, (V, d)), rng.normal(0, 1, (T, d))
SELF, CROSS = ([rng.normal(0, 1 / 6, s) for s in [(d, d), (d,)] * 4] for _ in range(2))
FFN = [rng.normal(0, 1 / 6, shape) for shape in [(d, F), (F,), (F, d), (d,)]]


def ids(text: str) -> np.ndarray:
    """Each word's id; · is -100, which is no target."""
    return np.array([IGNORE_INDEX if w == "·" else VOCABULARY.index(w) for w in text.split()])


def embed(text: str) -> np.ndarray:
    """Word and position: [T, d]."""
    x, _ = lookup_forward(ids(text), WORDS)
    return position_forward(x, np.arange(len(x)), POSITIONS)[0]


def attention(
    x: np.ndarray, memory: np.ndarray, w: Weights, mask: np.ndarray
) -> tuple[np.ndarray, tuple[KeysValuesSaved, QueryAttentionSaved]]:
    """Queries from x, keys and values from memory; self-attention is memory = x."""
    (k, v), keys_values = keys_values_forward(memory, *w[:4], n_head=H)
    y, saved = query_attention_forward(
        x, k, v, *w[4:], n_head=H, divisor=math.sqrt(d // H), mask=mask
    )
    return y, (keys_values, saved)


def reached(text: str, memory: np.ndarray, mask: np.ndarray, position: int) -> np.ndarray:
    """Which rows of memory get a gradient if only one position of the attention has one. [S]"""
    y, (keys_values, saved) = attention(embed(text), memory, CROSS, mask)
    dy = np.zeros_like(y)
    dy[position] = 1
    _, dk, dv, *_ = query_attention_backward(dy, saved)
    dmemory, *_ = keys_values_backward(dk, dv, keys_values)
    return (dmemory != 0).any(axis=-1)


def add_and_norm(x: np.ndarray, correction: np.ndarray) -> np.ndarray:
    """Post-norm, as in 2017 and in BERT: LayerNorm(x + correction)."""
    return layer_norm_forward(x + correction, np.ones(d), np.zeros(d), eps=1e-5)[0]


def one_text(text: str, mask: np.ndarray) -> np.ndarray:
    """Encoder-only and decoder-only: the same layer; only the mask tells them apart. [T, d]"""
    x = embed(text)
    x = add_and_norm(x, attention(x, x, SELF, mask)[0])
    return add_and_norm(x, feed_forward_forward(x, *FFN, activation="relu")[0])


def two_texts(source: str, text: str) -> np.ndarray:
    """Encoder-decoder: the decoder also looks at what the encoder made of the source. [T, d]"""
    memory, x = one_text(source, EVERYTHING), embed(text)
    x = add_and_norm(x, attention(x, x, SELF, causal_mask(len(x), len(x)))[0])
    x = add_and_norm(x, attention(x, memory, CROSS, EVERYTHING[: len(x)])[0])
    return add_and_norm(x, feed_forward_forward(x, *FFN, activation="relu")[0])


def losses(x: np.ndarray, targets: str) -> list[float]:
    """The loss of each position that is asked."""
    logits, _ = lm_head_forward(x, WORDS / d)
    each = zip(logits, ids(targets), strict=True)
    return [float(cross_entropy_forward(row[None], t[None])[0]) for row, t in each if t >= 0]
