"""BERT's sizes and options (config.json), and the parameters that follow from them.

Field names are those of Hugging Face's `config.json`. `hidden_size` is the article's d,
`num_attention_heads` H, `num_hidden_layers` L, `vocab_size` V, `intermediate_size` F,
`max_position_embeddings` the context length. Leaves out BERT as a decoder, and relative positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from npgpt.ops.activation import ACTIVATIONS

SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)


@dataclass(frozen=True)
class BERTConfig:
    """What `config.json` says of a BERT; the defaults are BERT-base, uncased (chapter 3)."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12
    tie_word_embeddings: bool = True
    initializer_range: float = 0.02
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    pad_token_id: int | None = 0
    # Whatever else the file said; written back on saving.
    other: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], where: str = "config.json") -> BERTConfig:
        """Read and check a parsed `config.json`; `where` names the file in errors.

        Raises ValueError, one sentence, for a model that is not BERT, a decoder, relative
        positions, sizes that are not positive integers, or an unknown activation.
        """
        if raw.get("model_type", "bert") != "bert":
            raise ValueError(f"{where}: model_type is {raw['model_type']!r}, but must be 'bert'.")
        for key in ("is_decoder", "add_cross_attention"):
            if raw.get(key):
                raise ValueError(f"{where}: {key} is set, but this BERT only encodes.")
        if (kind := raw.get("position_embedding_type", "absolute")) != "absolute":
            raise ValueError(
                f"{where}: position_embedding_type is {kind!r}, but npgpt's BERT has 'absolute' "
                "positions only."
            )
        known = {f.name for f in fields(cls)} - {"other"}
        config = cls(
            **{key: value for key, value in raw.items() if key in known},
            other={key: value for key, value in raw.items() if key not in known},
        )
        config._check(where)
        return config

    def to_dict(self) -> dict[str, Any]:
        """The content of `config.json`, with every key that was read."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "other"}
        return {"architectures": ["BertForMaskedLM"], "model_type": "bert", **self.other, **own}

    @property
    def attention_divisor(self) -> float:
        """What the scores are divided by in step 3: √d_h."""
        return math.sqrt(self.hidden_size // self.num_attention_heads)

    def _check(self, where: str) -> None:
        for name in SIZES:
            size = getattr(self, name)
            if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
                raise ValueError(f"{where}: {name} is {size!r}, but must be a positive integer.")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"{where}: hidden_size {self.hidden_size} cannot be cut into num_attention_heads "
                f"{self.num_attention_heads} heads."
            )
        if self.hidden_act not in list(ACTIVATIONS):  # a list takes any JSON value
            raise ValueError(
                f"{where}: hidden_act {self.hidden_act!r} is unknown; "
                f"choose one of {', '.join(ACTIVATIONS)}."
            )
        if not isinstance(tied := self.tie_word_embeddings, bool):
            raise ValueError(f"{where}: tie_word_embeddings is {tied!r}, not true or false.")
        eps = self.layer_norm_eps
        if not isinstance(eps, (int, float)) or not 0 <= eps < math.inf:
            raise ValueError(f"{where}: layer_norm_eps is {eps!r}, not a number >= 0.")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            p = getattr(self, name)
            if not isinstance(p, (int, float)) or not 0 <= p < 1:
                raise ValueError(f"{where}: {name} is {p!r}, but must be a probability in [0, 1).")


def param_shapes(
    config: BERTConfig, *, pooler: bool = True, mlm_head: bool = True
) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter, in the order of the forward pass; the two heads at will.

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
