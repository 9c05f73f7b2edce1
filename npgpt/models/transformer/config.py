"""Sizes and options of an encoder-decoder (config.json); its parameters: `transformer_params.py`.

Three dialects of one model: `transformer`, as the paper of 2017 has it; `bart` and `marian`, whose
checkpoints Hugging Face's transformers writes. Field names are those of its `config.json`.
`d_model` is the article's d, `…_attention_heads` H, `…_ffn_dim` F, `…_layers` N.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

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
NEVER = ("normalize_before", "add_final_layer_norm")  # other wiring than post-norm
SIZES = (
    "vocab_size",
    "max_position_embeddings",
    "d_model",
    *(f"{side}_{of}" for side in ("encoder", "decoder") for of in ("layers", "ffn_dim")),
    *(f"{side}_attention_heads" for side in ("encoder", "decoder")),
)


@dataclass(frozen=True)
class TransformerConfig:
    """What `config.json` says; the defaults are the paper's base model (article chapter 2)."""

    model_type: str = "transformer"
    vocab_size: int = 37000
    decoder_vocab_size: int | None = None  # None: vocab_size
    max_position_embeddings: int = 1024
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_ffn_dim: int = 2048
    decoder_ffn_dim: int = 2048
    activation_function: str = "relu"
    scale_embedding: bool = True
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.0
    init_std: float = 0.02
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int = 1
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | list[int] | None = None
    # How `generate` searches unless told otherwise.
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    max_length: int | None = None
    bad_words_ids: list[list[int]] | None = None
    renormalize_logits: bool = False
    # Whatever else the file said; written back on saving.
    other: Mapping[str, Any] = field(default_factory=dict)

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
        if wiring := [key for key in NEVER if raw.get(key)]:
            raise ValueError(
                f"{where}: {wiring[0]} is set, but here the norm comes after each sublayer only."
            )
        known = {f.name for f in fields(cls)} - {"other"}
        config = cls(
            **{
                **DIALECTS[model_type],
                **{key: value for key, value in raw.items() if key in known},
            },
            other={key: value for key, value in raw.items() if key not in known},
        )
        config._check(where)
        return config

    def to_dict(self) -> dict[str, Any]:
        """The content of `config.json`, with every key that was read."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "other"}
        if self.model_type != "marian":
            del own["decoder_vocab_size"]
        architectures = [CLASSES.get(self.model_type, "Transformer")]
        return {"is_encoder_decoder": True, "architectures": architectures, **self.other, **own}

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

    def _check(self, where: str) -> None:
        for name in SIZES:
            size = getattr(self, name)
            if type(size) is not int or size <= 0:
                raise ValueError(f"{where}: {name} is {size!r}, but must be a positive integer.")
        if self.decoder_vocab_size not in (None, self.vocab_size):
            self._check_second_vocabulary(where)
        for name in ("encoder_attention_heads", "decoder_attention_heads"):
            if self.d_model % getattr(self, name):
                raise ValueError(
                    f"{where}: d_model {self.d_model} cannot be cut into {name} "
                    f"{getattr(self, name)}."
                )
        if self.activation_function not in [*ACTIVATIONS, "swish"]:
            raise ValueError(
                f"{where}: activation_function {self.activation_function!r} is unknown; "
                f"choose one of {', '.join(ACTIVATIONS)}, swish."
            )
        for name in ("dropout", "attention_dropout"):
            p = getattr(self, name)
            if not isinstance(p, (int, float)) or not 0 <= p < 1:
                raise ValueError(f"{where}: {name} is {p!r}, but must be a probability in [0, 1).")
        for name in ("scale_embedding", "share_encoder_decoder_embeddings", "tie_word_embeddings"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{where}: {name} is {getattr(self, name)!r}, not true or false.")
        self._check_ids(where)

    def _check_second_vocabulary(self, where: str) -> None:
        size = self.decoder_vocab_size
        if type(size) is not int or size <= 0:
            raise ValueError(f"{where}: decoder_vocab_size is {size!r}, not a positive integer.")
        if self.share_encoder_decoder_embeddings:
            raise ValueError(
                f"{where}: decoder_vocab_size {size} is not vocab_size {self.vocab_size}, but "
                "share_encoder_decoder_embeddings gives both sides one table."
            )

    def _check_ids(self, where: str) -> None:
        names = ("decoder_start", "pad", "bos", "eos", "forced_bos", "forced_eos")
        for name in (f"{name}_token_id" for name in names):
            value = getattr(self, name)
            several = value if isinstance(value, list) and "eos" in name else [value]
            if any(type(i) is not int for i in several if i is not None) or (
                value is None and name == "decoder_start_token_id"
            ):
                raise ValueError(f"{where}: {name} is {value!r}, but must be the id of a token.")
        banned = [] if self.bad_words_ids is None else self.bad_words_ids
        words = banned if isinstance(banned, list) else [banned]
        if not all(isinstance(word, list) and all(type(i) is int for i in word) for word in words):
            raise ValueError(f"{where}: bad_words_ids is {banned!r:.60}, but must be lists of ids.")
        if any(len(word) != 1 for word in words):
            raise ValueError(f"{where}: bad_words_ids bans more than single tokens, unlike npgpt.")
