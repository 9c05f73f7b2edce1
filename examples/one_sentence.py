"""One sentence for three routes, which are made of one layer with random weights (chapters 3, 4).

What tells the routes apart is the mask, and whose keys and values are looked at.
"""

from __future__ import annotations

import numpy as np
from encoder_decoder import decoder_layer, encoder_layer, one_layer_each
from show import claim, table

from npgpt.cli import left
from npgpt.models.common import Pass
from npgpt.models.transformer.embedding import embedding_forward
from npgpt.ops.cross_entropy import IGNORE_INDEX
from npgpt.ops.lm_head import lm_head_forward
from npgpt.ops.mask import causal_mask

ENGLISH = ["[MASK]", "<s>", "</s>", "the", "cat", "dog", "sat", "on", "mat"]
VOCABULARY = [*ENGLISH, "猫", "狗", "坐", "在", "垫子", "上"]
V, T = len(VOCABULARY), 6
CAUSAL, EVERYTHING = causal_mask(T, T), np.ones((T, T), bool)
SENTENCE, HIDDEN, MASKED = "the cat sat on the mat", "the cat [MASK] on the mat", "· · sat · · ·"
SHIFTED = "<s> the cat sat on the"
CHINESE, NEXT = "<s> 猫 坐 在 垫子 上", "猫 坐 在 垫子 上 </s>"
SIZES = {"vocab_size": V, "d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
START = {"scale_embedding": False, "init_std": 0.02}  # a small table: nothing is likelier yet
model = one_layer_each(np.random.default_rng(2017), **SIZES, **START)


def ids(text: str) -> np.ndarray:
    """Each word's id; · is -100, which is no target."""
    return np.array([IGNORE_INDEX if w == "·" else VOCABULARY.index(w) for w in text.split()])


def embed(text: str) -> np.ndarray:
    """Word and position: [T, d]."""
    return embedding_forward(ids(text), 0, model.params, "encoder", model.config, Pass())[0]


def one_text(text: str, mask: np.ndarray) -> np.ndarray:
    """Encoder-only and decoder-only: the same layer, only the mask tells them apart. [T, d]"""
    return encoder_layer(model, embed(text), mask)[0]


def two_texts(source: str, text: str) -> np.ndarray:
    """Encoder-decoder: the decoder also looks at what the encoder made of the source. [T, d]"""
    return decoder_layer(model, embed(text), one_text(source, EVERYTHING))[0]


def logits(x: np.ndarray) -> np.ndarray:
    return lm_head_forward(x, model.params[model.config.head_table])[0]


def notice(what: str, found: np.ndarray, wanted: str) -> None:
    """A claim about positions: ■ where `found` is True."""
    row = table(found[None])[0]
    claim(f"{left(what, 58)}{row}", row == wanted)
