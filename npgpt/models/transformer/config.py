"""Sizes and options of an encoder-decoder (config.json), and the parameters that follow from them.

Three dialects of one model: `transformer`, as the paper of 2017 has it; `bart` and `marian`, whose
checkpoints Hugging Face's transformers writes. Field names are those of its `config.json`.
`d_model` is the article's d, `…_attention_heads` H, `…_ffn_dim` F, `…_layers` N.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from npgpt.files.kinds import AN_ID, Id, Ids, Probability, Size, array_of, one_of
from npgpt.models.settings import as_raw, check_config, check_heads, naming, read_settings
from npgpt.ops.activation import ACTIVATIONS

# What config.json means where it is silent; the paper's model has its values in TransformerConfig.
LARGE: dict[str, Any] = {
    "d_model": 1024,
    **{f"{side}_layers": 12 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 16 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 4096 for side in ("encoder", "decoder")},
    "activation_function": "gelu",
    "scale_embedding": False,
}
DIALECTS: dict[str, dict[str, Any]] = {
    "transformer": {},
    "bart": {
        **LARGE,
        "vocab_size": 50265,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2,
    },
    "marian": {
        **LARGE,
        "vocab_size": 58101,
        "pad_token_id": 58100,
        "bos_token_id": None,
        "eos_token_id": 0,
        "decoder_start_token_id": 58100,
        "forced_eos_token_id": 0,
    },
}
CLASSES = {"bart": "BartForConditionalGeneration", "marian": "MarianMTModel"}
REFUSED = dict.fromkeys(
    ("normalize_before", "add_final_layer_norm"),  # other wiring than post-norm
    "here the norm comes after each sublayer only",
)
FIRST_POSITION = 2  # the row of position 0 in BART's tables; the rows before it are never used


Words = Annotated[list[list[int]], array_of(array_of(AN_ID))]


@dataclass(frozen=True)
class TransformerConfig:
    """What `config.json` says; the defaults are the paper's base model (article chapter 2)."""

    model_type: Annotated[str, one_of(*DIALECTS)] = "transformer"
    vocab_size: Size = 37000
    decoder_vocab_size: Size | None = None  # None: vocab_size
    max_position_embeddings: Size = 1024
    d_model: Size = 512
    encoder_layers: Size = 6
    decoder_layers: Size = 6
    encoder_attention_heads: Size = 8
    decoder_attention_heads: Size = 8
    encoder_ffn_dim: Size = 2048
    decoder_ffn_dim: Size = 2048
    activation_function: Annotated[str, one_of(*ACTIVATIONS, "swish")] = "relu"
    scale_embedding: bool = True
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    dropout: Probability = 0.1
    attention_dropout: Probability = 0.0
    init_std: float = 0.02
    pad_token_id: Id | None = 0
    bos_token_id: Id | None = None
    eos_token_id: Ids | None = 2
    decoder_start_token_id: Id = 1
    forced_bos_token_id: Id | None = None
    forced_eos_token_id: Ids | None = None
    # How `generate` searches unless told otherwise.
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    max_length: int | None = None
    bad_words_ids: Words | None = None
    renormalize_logits: bool = False
    # Whatever else the file said; written back on saving.
    other: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for what no encoder-decoder can be."""
        check_config(self)
        for side in ("encoder", "decoder"):
            check_heads(self, "d_model", f"{side}_attention_heads")
        if self.target_vocab_size != self.vocab_size and self.share_encoder_decoder_embeddings:
            raise ValueError(
                f"decoder_vocab_size {self.decoder_vocab_size} is not vocab_size "
                f"{self.vocab_size}, but share_encoder_decoder_embeddings gives both sides one "
                "table."
            )
        if any(len(word) != 1 for word in self.bad_words_ids or []):
            raise ValueError("bad_words_ids bans more than single tokens, unlike npgpt.")

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], where: str = "config.json") -> TransformerConfig:
        """Read and check a parsed `config.json`; `where` names the file in errors.

        Raises ValueError, one sentence, for another kind of model, sizes that are not positive
        integers, an unknown activation, or pre-norm wiring.
        """
        model_type = raw.get("model_type", "transformer")
        if model_type not in list(DIALECTS):  # a list takes any JSON value
            raise ValueError(
                f"{where}: model_type is {model_type!r}, but this encoder-decoder loads "
                f"{', '.join(map(repr, DIALECTS))}."
            )
        raw = {**DIALECTS[model_type], **raw}
        settings = read_settings(cls, raw, where, model_type=model_type, refused=REFUSED)
        with naming(where):
            return cls(**settings)

    def to_dict(self) -> dict[str, Any]:
        """The content of `config.json`, with every key that was read."""
        architectures = [CLASSES.get(self.model_type, "Transformer")]
        raw = as_raw(self, is_encoder_decoder=True, architectures=architectures)
        if self.model_type != "marian":
            del raw["decoder_vocab_size"]
        return raw

    @property
    def target_vocab_size(self) -> int:
        """V of the decoder: the encoder's, unless their tables are two and differ."""
        return self.decoder_vocab_size or self.vocab_size

    @property
    def source_table(self) -> str:
        """Name of the encoder's token table."""
        shared = self.share_encoder_decoder_embeddings
        return "shared.weight" if shared else "encoder.embed_tokens.weight"

    @property
    def target_table(self) -> str:
        """Name of the decoder's token table."""
        shared = self.share_encoder_decoder_embeddings
        return "shared.weight" if shared else "decoder.embed_tokens.weight"

    @property
    def head_table(self) -> str:
        """Name of the table that turns vectors into logits."""
        return self.target_table if self.tie_word_embeddings else "lm_head.weight"

    @property
    def learned_positions(self) -> bool:
        """BART's learned tables, and its LayerNorm of the embeddings; else sinusoids without."""
        return self.model_type == "bart"

    @property
    def activation(self) -> str:
        """`activation_function` under the name that `ops.activation` has for it."""
        return "silu" if self.activation_function == "swish" else self.activation_function

    @property
    def embedding_scale(self) -> float:
        """√d or 1: what token vectors are multiplied by before positions are added."""
        return math.sqrt(self.d_model) if self.scale_embedding else 1.0

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """Tokens that `generate` never writes: the `bad_words_ids` of one token."""
        return tuple(word[0] for word in self.bad_words_ids or [])


def param_shapes(config: TransformerConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter, in the order of the forward pass.

    Names are those of Hugging Face's checkpoint without `model.`; matrices are [in, out], tables
    [V, d]. BART's position tables have two rows more than there are positions.
    """
    d, V = config.d_model, config.target_vocab_size
    shapes: dict[str, tuple[int, ...]] = {config.source_table: (config.vocab_size, d)}
    for side in ("encoder", "decoder"):
        if side == "decoder":
            shapes[config.target_table] = (V, d)
        if config.learned_positions:
            shapes[f"{side}.embed_positions.weight"] = (
                config.max_position_embeddings + FIRST_POSITION,
                d,
            )
            shapes |= _vectors(f"{side}.layernorm_embedding", d)
        for n in range(getattr(config, f"{side}_layers")):
            shapes |= _layer(f"{side}.layers.{n}.", config, side)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (V, d)
    if config.model_type != "transformer":
        shapes["final_logits_bias"] = (1, V)
    return shapes


def _layer(layer: str, config: TransformerConfig, side: str) -> dict[str, tuple[int, ...]]:
    d, F = config.d_model, getattr(config, f"{side}_ffn_dim")
    shapes: dict[str, tuple[int, ...]] = {}
    for attention in ("self_attn", "encoder_attn")[: 1 if side == "encoder" else 2]:
        for projection in ("k_proj", "v_proj", "q_proj", "out_proj"):
            shapes[f"{layer}{attention}.{projection}.weight"] = (d, d)
            shapes[f"{layer}{attention}.{projection}.bias"] = (d,)
        shapes |= _vectors(f"{layer}{attention}_layer_norm", d)
    shapes |= {f"{layer}fc1.weight": (d, F), f"{layer}fc1.bias": (F,)}
    shapes |= {f"{layer}fc2.weight": (F, d), f"{layer}fc2.bias": (d,)}
    return shapes | _vectors(f"{layer}final_layer_norm", d)


def _vectors(name: str, d: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (d,), f"{name}.bias": (d,)}


def init_params(
    config: TransformerConfig, rng: np.random.Generator, dtype: type[np.floating] = np.float32
) -> dict[str, np.ndarray]:
    """Fresh parameters: biases 0, gains 1, matrices Xavier-uniform, tables N(0, d^-½).

    Post-norm trains from there; with N(0, 0.02²) everywhere, as BART and Marian checkpoints were
    drawn before their training, the first steps are slow in a narrow model.
    """
    params = {}
    for name, shape in param_shapes(config).items():
        if name.endswith("bias"):
            params[name] = np.zeros(shape, dtype)
        elif "norm" in name:
            params[name] = np.ones(shape, dtype)
        elif ".layers." in name:
            bound = math.sqrt(6 / sum(shape))
            params[name] = rng.uniform(-bound, bound, shape).astype(dtype)
        else:
            std = config.d_model**-0.5 if config.scale_embedding else config.init_std
            params[name] = (std * rng.standard_normal(shape)).astype(dtype)
    return params
