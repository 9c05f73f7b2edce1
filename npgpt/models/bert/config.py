"""BERT's sizes and options (config.json), and the parameters that follow from them.

Field names are those of Hugging Face's `config.json`. `hidden_size` is the article's d,
`num_attention_heads` H, `num_hidden_layers` L, `vocab_size` V, `intermediate_size` F,
`max_position_embeddings` the context length. Leaves out BERT as a decoder, and relative positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npgpt.files.kinds import NonNegative, Probability, Size
from npgpt.models.settings import (
    Activation,
    as_raw,
    check_config,
    check_heads,
    naming,
    read_settings,
)

REFUSED = dict.fromkeys(("is_decoder", "add_cross_attention"), "this BERT only encodes")


@dataclass(frozen=True)
class BERTConfig:
    """What `config.json` says of a BERT; the defaults are BERT-base, uncased (chapter 3)."""

    vocab_size: Size = 30522
    hidden_size: Size = 768
    num_hidden_layers: Size = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    max_position_embeddings: Size = 512
    type_vocab_size: Size = 2
    hidden_act: Activation = "gelu"
    layer_norm_eps: NonNegative = 1e-12
    tie_word_embeddings: bool = True
    initializer_range: float = 0.02
    hidden_dropout_prob: Probability = 0.1
    attention_probs_dropout_prob: Probability = 0.1
    pad_token_id: int | None = 0
    # Whatever else the file said; written back on saving.
    other: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for what no BERT can be."""
        check_config(self)
        check_heads(self, "hidden_size", "num_attention_heads")

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], where: str = "config.json") -> BERTConfig:
        """Read and check a parsed `config.json`; `where` names the file in errors.

        Raises ValueError, one sentence, for a model that is not BERT, a decoder, relative
        positions, sizes that are not positive integers, or an unknown activation.
        """
        settings = read_settings(cls, raw, where, model_type="bert", refused=REFUSED)
        if (positions := raw.get("position_embedding_type", "absolute")) != "absolute":
            raise ValueError(
                f"{where}: position_embedding_type is {positions!r}, but npgpt's BERT has "
                "'absolute' positions only."
            )
        with naming(where):
            return cls(**settings)

    def to_dict(self) -> dict[str, Any]:
        """The content of `config.json`, with every key that was read."""
        return as_raw(self, architectures=["BertForMaskedLM"], model_type="bert")

    @property
    def attention_divisor(self) -> float:
        """What the scores are divided by in step 3: √d_h."""
        return math.sqrt(self.hidden_size // self.num_attention_heads)


def param_shapes(
    config: BERTConfig, *, pooler: bool = True, mlm_head: bool = True
) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter, in the order of the forward pass; each head only if wanted.

    Names are the checkpoint's without `bert.`. Matrices are [in, out] here and [out, in] in the
    checkpoint; tables [V, d] are the same in both. `cls.predictions.decoder.weight` exists only
    when the MLM head is not tied to the word embeddings.
    """
    V, d, F = config.vocab_size, config.hidden_size, config.intermediate_size
    layer: dict[str, tuple[int, ...]] = {}
    for part in ("self.query", "self.key", "self.value", "output.dense"):
        layer |= {f"attention.{part}.weight": (d, d), f"attention.{part}.bias": (d,)}
    layer |= {"attention.output.LayerNorm.weight": (d,), "attention.output.LayerNorm.bias": (d,)}
    layer |= {"intermediate.dense.weight": (d, F), "intermediate.dense.bias": (F,)}
    layer |= {"output.dense.weight": (F, d), "output.dense.bias": (d,)}
    layer |= {"output.LayerNorm.weight": (d,), "output.LayerNorm.bias": (d,)}

    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (V, d),
        "embeddings.position_embeddings.weight": (config.max_position_embeddings, d),
        "embeddings.token_type_embeddings.weight": (config.type_vocab_size, d),
        "embeddings.LayerNorm.weight": (d,),
        "embeddings.LayerNorm.bias": (d,),
    }
    for n in range(config.num_hidden_layers):
        shapes |= {f"encoder.layer.{n}.{name}": shape for name, shape in layer.items()}
    if pooler:
        shapes |= {"pooler.dense.weight": (d, d), "pooler.dense.bias": (d,)}
    if mlm_head:
        transform = "cls.predictions.transform."
        shapes |= {transform + "dense.weight": (d, d), transform + "dense.bias": (d,)}
        shapes |= {transform + "LayerNorm.weight": (d,), transform + "LayerNorm.bias": (d,)}
        if not config.tie_word_embeddings:
            shapes["cls.predictions.decoder.weight"] = (V, d)
        shapes["cls.predictions.bias"] = (V,)
    return shapes


def init_params(
    config: BERTConfig,
    rng: np.random.Generator,
    dtype: type[np.floating] = np.float32,
    *,
    pooler: bool = True,
    mlm_head: bool = True,
) -> dict[str, np.ndarray]:
    """Fresh parameters as BERT starts: weights N(0, initializer_range²), biases 0, gains 1."""
    params = {}
    for name, shape in param_shapes(config, pooler=pooler, mlm_head=mlm_head).items():
        if name.endswith("bias"):
            params[name] = np.zeros(shape, dtype)
        elif "LayerNorm" in name:
            params[name] = np.ones(shape, dtype)
        else:
            noise = config.initializer_range * rng.standard_normal(shape)
            params[name] = noise.astype(dtype)
    return params
