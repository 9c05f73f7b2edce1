"""Llama's sizes and options (config.json), and the parameters that follow from them.

Field names are those of Hugging Face's `config.json`. `hidden_size` is the article's d,
`num_attention_heads` H, `num_key_value_heads` H_kv, `head_dim` d_h, `num_hidden_layers` L,
`vocab_size` V, `intermediate_size` F. Leaves out biases and the rotary types yarn and longrope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npgpt.files.kinds import Blocks, Ids, NonNegative, Positive, Probability, Size, is_number
from npgpt.models.settings import (
    Activation,
    Keys,
    as_raw,
    check_config,
    check_heads,
    naming,
    read_settings,
)
from npgpt.ops import rope

# rope_type -> the numbers it needs besides rope_theta
ROPE_TYPES = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
}
KEYS = Keys(
    fixed={
        **dict.fromkeys(("attention_bias", "mlp_bias"), (False, "npgpt's Llama has no biases")),
        "add_cross_attention": (False, "npgpt's Llama has none"),
        "is_causal": (True, "npgpt's Llama looks back only"),
        "is_encoder_decoder": (False, "npgpt's Llama is one stack"),
        "partial_rotary_factor": (1.0, "npgpt turns whole heads"),
    },
    no_effect=(
        "is_decoder",
        "is_llama_config",
        "max_sequence_length",
        "pretraining_tp",  # products in slices: the same but for rounding
        "tie_encoder_decoder",
    ),
)


@dataclass(frozen=True)
class LlamaConfig:
    """What `config.json` says of a Llama; the defaults are those of Hugging Face."""

    vocab_size: Size = 32000
    hidden_size: Size = 4096
    intermediate_size: Size = 11008
    num_hidden_layers: Blocks = 32
    num_attention_heads: Size = 32
    num_key_value_heads: Size | None = None  # None: H
    head_dim: Size | None = None  # None: d / H
    hidden_act: Activation = "silu"
    max_position_embeddings: Size = 2048
    rms_norm_eps: NonNegative = 1e-6
    rope_theta: Positive = 10000.0
    rope_scaling: Mapping[str, Any] | None = None  # None: rope_type "default"
    tie_word_embeddings: bool = False
    initializer_range: float = 0.02
    attention_dropout: Probability = 0.0
    bos_token_id: int | None = 1
    eos_token_id: Ids | None = 2
    other: Mapping[str, Any] = field(default_factory=dict)  # the rest, written back on saving

    def __post_init__(self) -> None:
        """Raises ValueError for what no Llama can be."""
        check_config(self)
        if self.rope_scaling is not None:
            _check_rotary(self.rope_scaling)
        self._check_heads()

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], where: str = "config.json") -> LlamaConfig:
        """Read and check a parsed `config.json`; `where` names the file in errors.

        The rotary settings may stand in `rope_theta` and `rope_scaling` or, as transformers 5
        writes them, together in `rope_parameters`. Raises ValueError, one sentence, for a model
        that is not a Llama, sizes that do not fit, biases, and rotary types that are left out.
        """
        rotary = raw.get("rope_scaling") or raw.get("rope_parameters")
        given = {name: raw[name] for name in raw if name != "rope_parameters"}
        if rotary is not None:
            given |= _rotary(rotary, where)
        settings = read_settings(cls, given, where, model_type="llama", keys=KEYS)
        with naming(where):
            return cls(**settings)

    def to_dict(self) -> dict[str, Any]:
        """The content of `config.json`; rotary settings as both transformers 4 and 5 read them."""
        raw = as_raw(self, architectures=["LlamaForCausalLM"], model_type="llama")
        scaling = self.rope_scaling or {"rope_type": "default"}
        return {**raw, "rope_parameters": {"rope_theta": self.rope_theta, **scaling}}

    @property
    def n_kv_head(self) -> int:
        """H_kv."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def d_h(self) -> int:
        """Width of a head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def rope_type(self) -> str:
        """A key of `ROPE_TYPES`."""
        return self.rope_scaling["rope_type"] if self.rope_scaling else "default"

    def frequencies(self, length: int) -> np.ndarray:
        """The angle of each pair from one position to the next [d_h/2], in a text so long."""
        d_h, theta, scaling = self.d_h, self.rope_theta, self.rope_scaling or {}
        numbers = {name: scaling[name] for name in ROPE_TYPES[self.rope_type]}
        if self.rope_type == "linear":
            return rope.linear_frequencies(d_h, theta, **numbers)
        if self.rope_type == "dynamic":
            positions = self.max_position_embeddings
            return rope.dynamic_frequencies(
                d_h, theta, max_position_embeddings=positions, length=length, **numbers
            )
        if self.rope_type == "llama3":
            return rope.llama3_frequencies(d_h, theta, **numbers)
        return rope.default_frequencies(d_h, theta)

    def _check_heads(self) -> None:
        if self.head_dim is None:
            check_heads(self, "hidden_size", "num_attention_heads")
        if self.d_h % 2:
            raise ValueError(f"a head is {self.d_h} wide, but rotary positions turn pairs.")
        if self.d_h == 2 and self.rope_type == "dynamic":
            raise ValueError("rope_type 'dynamic' needs heads wider than one pair.")
        if self.num_attention_heads % self.n_kv_head:
            raise ValueError(
                f"num_attention_heads {self.num_attention_heads} is no multiple of "
                f"num_key_value_heads {self.n_kv_head}."
            )


def _rotary(rotary: Any, where: str) -> dict[str, Any]:
    """`rope_theta`, where it stands here, and `rope_scaling` with its `rope_type` spelled out."""
    if not isinstance(rotary, Mapping):
        raise ValueError(f"{where}: the rotary settings are {rotary!r:.60}, not a JSON object.")
    scaling = {key: value for key, value in rotary.items() if key not in ("type", "rope_theta")}
    rope_type = scaling.setdefault("rope_type", rotary.get("type", "default"))
    if (scaling.get("partial_rotary_factor") or 1) != 1:
        raise ValueError(f"{where}: partial_rotary_factor is set, but npgpt turns whole heads.")
    found = {"rope_theta": rotary["rope_theta"]} if "rope_theta" in rotary else {}
    return {**found, "rope_scaling": None if rope_type == "default" else scaling}


def _check_rotary(scaling: Mapping[str, Any]) -> None:
    """Raise ValueError for a rotary type that is left out, or without the numbers it needs."""
    rope_type = scaling.get("rope_type")
    if rope_type not in list(ROPE_TYPES):
        raise ValueError(
            f"rope_type {rope_type!r:.60} is not offered; npgpt turns by one of "
            f"{', '.join(ROPE_TYPES)}."
        )
    for name in ROPE_TYPES[rope_type]:
        if not is_number(scaling.get(name)) or scaling[name] <= 0:
            raise ValueError(
                f"rope_type {rope_type!r} needs {name}, a number > 0, but it is "
                f"{scaling.get(name)!r:.60}."
            )
    if rope_type == "llama3" and scaling["low_freq_factor"] >= scaling["high_freq_factor"]:
        raise ValueError("low_freq_factor must be below high_freq_factor.")


def param_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter, in the order of the forward pass.

    Matrices are [in, out]; the checkpoint's Linear stores [out, in]. `lm_head.weight` [V, d] exists
    only when the head is not tied to `embed_tokens.weight`.
    """
    d, F = config.hidden_size, config.intermediate_size
    queries, keys = config.num_attention_heads * config.d_h, config.n_kv_head * config.d_h
    block: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (d,),
        "self_attn.q_proj.weight": (d, queries),
        "self_attn.k_proj.weight": (d, keys),
        "self_attn.v_proj.weight": (d, keys),
        "self_attn.o_proj.weight": (queries, d),
        "post_attention_layernorm.weight": (d,),
        "mlp.gate_proj.weight": (d, F),
        "mlp.up_proj.weight": (d, F),
        "mlp.down_proj.weight": (F, d),
    }
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (config.vocab_size, d)}
    for n in range(config.num_hidden_layers):
        shapes.update({f"layers.{n}.{name}": shape for name, shape in block.items()})
    shapes["norm.weight"] = (d,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, d)
    return shapes


def init_params(
    config: LlamaConfig, rng: np.random.Generator, dtype: type[np.floating] = np.float32
) -> dict[str, np.ndarray]:
    """Fresh parameters as Hugging Face starts them: weights N(0, initializer_range²), gains 1."""
    params = {}
    for name, shape in param_shapes(config).items():
        if len(shape) == 1:
            params[name] = np.ones(shape, dtype)
        else:
            params[name] = (config.initializer_range * rng.standard_normal(shape)).astype(dtype)
    return params
