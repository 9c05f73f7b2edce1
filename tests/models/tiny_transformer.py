"""Small encoder-decoders for the tests, with the scales of trained ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from npgpt.models.transformer.config import TransformerConfig
from npgpt.models.transformer.model import Transformer
from npgpt.models.transformer.params import init_params

# No two sizes agree, so that a swapped axis cannot go unnoticed.
SIZES: dict[str, Any] = {
    "vocab_size": 19,
    "max_position_embeddings": 17,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 10,
    "decoder_ffn_dim": 14,
    "pad_token_id": 18,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}
DIALECTS: dict[str, dict[str, Any]] = {
    "2017": {},
    "bart": {"model_type": "bart"},
    "marian": {"model_type": "marian", "activation_function": "swish"},
    "two tables": {
        "model_type": "marian",
        "share_encoder_decoder_embeddings": False,
        "decoder_vocab_size": 13,
        "pad_token_id": 12,
        "tie_word_embeddings": False,
    },
}


def random_transformer(
    rng: np.random.Generator, dtype: type[np.floating] = np.float64, **options: Any
) -> Transformer:
    """A model whose biases and gains are not 0 and 1 either."""
    config = TransformerConfig.from_dict({**SIZES, **options})
    params = init_params(config, rng, np.float64)
    for param in params.values():
        param += 0.2 * rng.standard_normal(param.shape)
    return Transformer(config, {name: param.astype(dtype) for name, param in params.items()})
