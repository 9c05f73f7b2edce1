"""BERT's sizes and options (config.json), and the parameters that follow from them.

Field names are those of Hugging Face's `config.json` for BERT; DistilBERT's has others, which
`npgpt.models.bert.families` lists. `hidden_size` is the article's d, `num_attention_heads` H,
`num_hidden_layers` L, `vocab_size` V, `intermediate_size` F, `max_position_embeddings` the context
length, but in a RoBERTa some rows more. Leaves out BERT as a decoder, and relative positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npgpt.files.kinds import Blocks, NonNegative, Probability, Size, is_id
from npgpt.models.bert.families import Family, family_of
from npgpt.models.settings import (
    Activation,
    Keys,
    as_raw,
    check_config,
    check_heads,
    naming,
    read_settings,
)

ENCODES = (False, "this BERT only encodes")
KEYS = Keys(
    fixed={
        **dict.fromkeys(("is_decoder", "add_cross_attention", "is_encoder_decoder"), ENCODES),
        "position_embedding_type": ("absolute", "npgpt's BERT has 'absolute' positions only"),
    },
    no_effect=(
        "classifier_dropout",
        "directionality",
        *(f"pooler_{of}" for of in ("fc_size", "num_attention_heads", "num_fc_layers", "type")),
        "pooler_size_per_head",
        *("qa_dropout", "seq_classif_dropout", "tie_weights_"),
        "sinusoidal_pos_embds",  # how the position table began
        "tie_encoder_decoder",
    ),
)
# Names that transformers reads in a DistilBERT's file, too.
ALIASES = ("hidden_size", "num_attention_heads", "num_hidden_layers")
DISTILBERTS_EPS = {"layer_norm_eps": (1e-12, "a distilbert's is always 1e-12")}


@dataclass(frozen=True)
class BERTConfig:
    """What `config.json` says of a BERT; the defaults are BERT-base, uncased (chapter 3)."""

    vocab_size: Size = 30522
    hidden_size: Size = 768
    num_hidden_layers: Blocks = 12
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
    model_type: str = "bert"
    # Whatever else the file said; written back on saving.
    other: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for what no BERT can be."""
        check_config(self, self.family.renamed)
        check_heads(self, "hidden_size", "num_attention_heads", self.family.renamed)
        first, rows = self.first_position, self.max_position_embeddings
        if self.family.counts_tokens and (not is_id(self.pad_token_id) or first >= rows):
            raise ValueError(
                f"pad_token_id is {self.pad_token_id}, but a {self.model_type} has its first "
                f"position behind that row of {rows} (max_position_embeddings); 1 is usual."
            )

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], where: str = "config.json") -> BERTConfig:
        """Read and check a parsed `config.json`; `where` names the file in errors.

        Raises ValueError, one sentence, for a model that is no BERT, a decoder, relative
        positions, sizes that are not positive integers, or an unknown activation.
        """
        model_type = raw.get("model_type", "bert")
        with naming(where):
            family = family_of(model_type)
        renamed = family.renamed
        keys = KEYS._replace(
            aliases={name: renamed[name] for name in ALIASES if name in renamed},
            fixed={**KEYS.fixed, **(DISTILBERTS_EPS if model_type == "distilbert" else {})},
            renamed=renamed,
            defaults=family.defaults,
        )
        settings = read_settings(cls, raw, where, model_type=model_type, keys=keys)
        with naming(where):
            return cls(**settings)

    def to_dict(self) -> dict[str, Any]:
        """The content of `config.json`, with every key that was read."""
        family = self.family
        raw = as_raw(self, family.renamed, architectures=[f"{family.cls}ForMaskedLM"])
        if not family.has_types:
            del raw["type_vocab_size"]
        return raw

    @property
    def family(self) -> Family:
        """BERT, or which of its relatives."""
        return family_of(self.model_type)

    @property
    def first_position(self) -> int:
        """The row of a text's first token in the position table; RoBERTa's is behind padding's."""
        return (self.pad_token_id or 0) + 1 if self.family.counts_tokens else 0

    @property
    def context(self) -> int:
        """How many tokens a text may have."""
        return self.max_position_embeddings - self.first_position

    @property
    def head_act(self) -> str:
        """The activation in the MLM head."""
        return self.family.head_act or self.hidden_act

    @property
    def attention_divisor(self) -> float:
        """What the scores are divided by in step 3: √d_h."""
        return math.sqrt(self.hidden_size // self.num_attention_heads)


def param_shapes(
    config: BERTConfig, *, pooler: bool = True, mlm_head: bool = True
) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter, in the order of the forward pass; each head only if wanted.

    Names are the checkpoint's without `bert.`. Matrices are [in, out] here and [out, in] in the
    checkpoint; tables [V, d] are the same in both. The MLM head has a table of its own only when
    it is not tied to the word embeddings.
    """
    V, d, F = config.vocab_size, config.hidden_size, config.intermediate_size
    family = config.family
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (V, d),
        "embeddings.position_embeddings.weight": (config.max_position_embeddings, d),
    }
    if family.has_types:
        shapes["embeddings.token_type_embeddings.weight"] = (config.type_vocab_size, d)
    shapes |= _norm("embeddings.LayerNorm", d)
    for n in range(config.num_hidden_layers):
        part = family.layer(n)
        for name in (part.query, part.key, part.value, part.out):
            shapes |= _linear(name, d, d)
        shapes |= _norm(part.attn_norm, d)
        shapes |= _linear(part.wide, d, F) | _linear(part.narrow, F, d) | _norm(part.norm, d)
    if pooler and family.pooler is not None:
        shapes |= _linear(family.pooler, d, d)
    if mlm_head:
        shapes |= _linear(family.transform, d, d) | _norm(family.transform_norm, d)
        if not config.tie_word_embeddings:
            shapes[f"{family.decoder}.weight"] = (V, d)
        shapes[family.bias] = (V,)
    return shapes


def _linear(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (columns,)}


def _norm(name: str, d: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (d,), f"{name}.bias": (d,)}


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
        elif "norm" in name.lower():
            params[name] = np.ones(shape, dtype)
        else:
            noise = config.initializer_range * rng.standard_normal(shape)
            params[name] = noise.astype(dtype)
    return params
