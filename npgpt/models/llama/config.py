"""Sizes and options of Llama and its relatives (config.json), and the parameters they make.

Field names are those of Hugging Face's `config.json`. `hidden_size` is the article's d,
`num_attention_heads` H, `num_key_value_heads` H_kv, `head_dim` d_h, `num_hidden_layers` L,
`vocab_size` V, `intermediate_size` F, `num_local_experts` E. Who the relatives are is in
`families.py`, the rotary settings are in `rotary.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

import numpy as np

from npgpt.files.kinds import (
    Blocks,
    Count,
    Ids,
    NonNegative,
    Positive,
    Probability,
    Size,
    one_of,
)
from npgpt.models.llama.families import FAMILIES, Family
from npgpt.models.llama.rotary import Rotary, read_rotary
from npgpt.models.settings import (
    Activation,
    Keys,
    as_raw,
    check_config,
    check_heads,
    naming,
    read_settings,
)

KEYS = Keys(
    fixed={
        "add_cross_attention": (False, "npgpt's Llama has none"),
        "is_causal": (True, "npgpt's Llama looks back only"),
        "is_encoder_decoder": (False, "npgpt's Llama is one stack"),
        "partial_rotary_factor": (1.0, "npgpt turns whole heads"),
        "router_jitter_noise": (0.0, "npgpt trains without noise before the router; set it to 0"),
    },
    no_effect=(
        "is_decoder",
        "is_llama_config",
        "max_sequence_length",
        "original_max_position_embeddings",  # obeyed by `read_rotary`
        "pretraining_tp",  # products in slices: the same but for rounding
        "tie_encoder_decoder",
    ),
)
OF_EXPERTS = {"num_experts": "num_local_experts"}
FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class LlamaConfig:
    """What `config.json` says; the defaults are those of Hugging Face for a Llama."""

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
    attention_bias: bool = False  # q, k, v and o
    mlp_bias: bool = False
    sliding_window: Size | None = None  # how many keys a query sees at most; None: all before it
    use_sliding_window: bool = False  # of Qwen, which has windows only …
    max_window_layers: Count = 28  # … from this block on, …
    layer_types: list[str] | None = None  # … or as is said here of each block
    num_local_experts: Count = 0  # E
    num_experts_per_tok: Size = 2  # how many of them a token goes to
    norm_topk_prob: bool = False  # whether the weights of these sum to 1
    moe_intermediate_size: Size | None = None  # width of an expert; None: F
    decoder_sparse_step: Size = 1  # each block of so many has experts, …
    mlp_only_layers: list[int] | None = None  # … but for these
    output_router_logits: bool = False  # whether the load-balancing loss is added to the loss, …
    router_aux_loss_coef: float = 0.001  # … times this
    tie_word_embeddings: bool = False
    initializer_range: float = 0.02
    attention_dropout: Probability = 0.0
    bos_token_id: int | None = 1
    eos_token_id: Ids | None = 2
    model_type: Annotated[str, one_of(*FAMILIES)] = "llama"
    other: Mapping[str, Any] = field(default_factory=dict)  # the rest, written back on saving

    def __post_init__(self) -> None:
        """Raises ValueError for what no model of this family can be."""
        check_config(self)
        defaults = {setting.name: setting.default for setting in fields(self)}
        for name in self.family.unread:
            if getattr(self, name) != defaults[name]:
                raise ValueError(f"{name} is set, but a {self.model_type} has none.")
        self._check_heads()
        self.rotary.check()
        self._check_windows()
        E, k = self.num_local_experts, self.num_experts_per_tok
        if (E or self.model_type == "mixtral") and k > E:
            raise ValueError(f"num_experts_per_tok is {k}, but num_local_experts {E}.")

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], where: str = "config.json") -> LlamaConfig:
        """Read and check a parsed `config.json`; `where` names the file in errors.

        Raises ValueError, one sentence, for a model that is none of `FAMILIES`, sizes that do not
        fit, and rotary types that are left out.
        """
        model_type = raw.get("model_type", "llama")
        if model_type not in list(FAMILIES):  # a list takes any JSON value
            raise ValueError(
                f"{where}: model_type is {model_type!r:.60}, but must be one of "
                f"{', '.join(FAMILIES)}."
            )
        family = FAMILIES[model_type]
        unread = {name: raw[name] for name in raw if name in family.unread}
        given = {**raw, **read_rotary(raw, where)}
        given = {name: given[name] for name in given if name not in {*unread, "rope_parameters"}}
        aliases = {} if family.experts is None else OF_EXPERTS
        keys = KEYS._replace(aliases=aliases, defaults=family.defaults)
        settings = read_settings(cls, given, where, model_type=model_type, keys=keys)
        settings["other"] |= unread
        with naming(where):
            return cls(**settings)

    def to_dict(self) -> dict[str, Any]:
        """The content of `config.json`; rotary settings as both transformers 4 and 5 read them."""
        raw = as_raw(self, architectures=[self.family.cls], model_type=self.model_type)
        for name in self.family.unread:
            del raw[name]
        raw |= {name: self.other[name] for name in self.family.unread if name in self.other}
        if self.family.experts is not None:
            raw["num_experts"] = self.num_local_experts  # what transformers 4 reads in a qwen3_moe
        # Some relatives take null for the width that it stands for, others refuse it.
        raw |= {"head_dim": self.d_h, "num_key_value_heads": self.n_kv_head}
        if "moe_intermediate_size" in raw:
            raw["moe_intermediate_size"] = self.expert_width
        scaling = self.rope_scaling or {"rope_type": "default"}
        return {**raw, "rope_parameters": {"rope_theta": self.rope_theta, **scaling}}

    @property
    def family(self) -> Family:
        """What a model of this kind has."""
        return FAMILIES[self.model_type]

    @property
    def n_kv_head(self) -> int:
        """H_kv."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def d_h(self) -> int:
        """Width of a head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def rotary(self) -> Rotary:
        """How heads turn."""
        positions, scaling = self.max_position_embeddings, self.rope_scaling or {}
        return Rotary(self.d_h, self.rope_theta, positions, scaling)

    @property
    def windows(self) -> list[int | None]:
        """How many keys a query sees at most, in each block; None: all before it."""
        blocks, types, unread = range(self.num_hidden_layers), self.layer_types, self.family.unread
        if types is None:
            first = 0 if "max_window_layers" in unread else self.max_window_layers
            types = [SLIDING if n >= first else FULL for n in blocks]
        always = "use_sliding_window" in unread
        window = self.sliding_window if self.use_sliding_window or always else None
        return [window if kind == SLIDING else None for kind in types]

    @property
    def sparse(self) -> list[bool]:
        """Which blocks have experts in the place of one FFN."""
        E, step, dense = self.num_local_experts, self.decoder_sparse_step, self.mlp_only_layers
        blocks = range(self.num_hidden_layers)
        return [E > 0 and (n + 1) % step == 0 and n not in (dense or ()) for n in blocks]

    @property
    def expert_width(self) -> int:
        """How many neurons an expert has."""
        return self.moe_intermediate_size or self.intermediate_size

    @property
    def ffn_widths(self) -> list[int]:
        """How many neurons each block has, those of all its experts together."""
        mixture = self.num_local_experts * self.expert_width
        return [mixture if has_experts else self.intermediate_size for has_experts in self.sparse]

    @property
    def renormalise(self) -> bool:
        """Whether the weights of a token's experts sum to 1."""
        return self.norm_topk_prob or "norm_topk_prob" in self.family.unread

    def _check_windows(self) -> None:
        if (types := self.layer_types) is None:
            return
        if len(types) != self.num_hidden_layers or {*types} - {FULL, SLIDING}:
            raise ValueError(
                f"layer_types must name {FULL} or {SLIDING} for each of {self.num_hidden_layers} "
                f"blocks, but is {types!r:.80}."
            )
        if SLIDING in types and not (self.use_sliding_window and self.sliding_window):
            raise ValueError(
                f"layer_types has {SLIDING}, but use_sliding_window or sliding_window is not set."
            )

    def _check_heads(self) -> None:
        if self.head_dim is None:
            check_heads(self, "hidden_size", "num_attention_heads")
        if self.num_attention_heads % self.n_kv_head:
            raise ValueError(
                f"num_attention_heads {self.num_attention_heads} is no multiple of "
                f"num_key_value_heads {self.n_kv_head}."
            )


def param_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter, in the order of the forward pass.

    Matrices are [in, out]; the checkpoint's Linear stores [out, in]. `lm_head.weight` [V, d] exists
    only when the head is not tied to `embed_tokens.weight`.
    """
    d, attention = config.hidden_size, _attention_shapes(config)
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (config.vocab_size, d)}
    for n in range(config.num_hidden_layers):
        block = {
            "input_layernorm.weight": (d,),
            **attention,
            "post_attention_layernorm.weight": (d,),
        }
        shapes |= {f"layers.{n}.{name}": shape for name, shape in block.items()}
        shapes |= _expert_shapes(config, n) if config.sparse[n] else _mlp_shapes(config, n)
    shapes["norm.weight"] = (d,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, d)
    return shapes


def _projection(name: str, d_in: int, d_out: int, has_bias: bool) -> dict[str, tuple[int, ...]]:
    bias = {f"{name}_proj.bias": (d_out,)} if has_bias else {}
    return {f"{name}_proj.weight": (d_in, d_out), **bias}


def _attention_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    d, d_h, family = config.hidden_size, config.d_h, config.family
    queries, keys = config.num_attention_heads * d_h, config.n_kv_head * d_h
    qkv_bias = config.attention_bias or family.qkv_bias
    return {
        **_projection("self_attn.q", d, queries, qkv_bias),
        **_projection("self_attn.k", d, keys, qkv_bias),
        **_projection("self_attn.v", d, keys, qkv_bias),
        **({f"self_attn.{part}_norm.weight": (d_h,) for part in "qk"} if family.head_norms else {}),
        **_projection("self_attn.o", queries, d, config.attention_bias),
    }


def _mlp_shapes(config: LlamaConfig, n: int) -> dict[str, tuple[int, ...]]:
    d, F, mlp = config.hidden_size, config.intermediate_size, f"layers.{n}.mlp"
    return {
        **_projection(f"{mlp}.gate", d, F, config.mlp_bias),
        **_projection(f"{mlp}.up", d, F, config.mlp_bias),
        **_projection(f"{mlp}.down", F, d, config.mlp_bias),
    }


def expert_names(config: LlamaConfig, n: int) -> tuple[str, list[list[str]]]:
    """The parameters of block n's mixture: the router's, and gate, up and down of each expert."""
    assert config.family.experts is not None
    part, matrices = config.family.experts
    experts = range(config.num_local_experts)
    names = [[f"layers.{n}.{part}.experts.{e}.{W}.weight" for e in experts] for W in matrices]
    return f"layers.{n}.{part}.gate.weight", names


def _expert_shapes(config: LlamaConfig, n: int) -> dict[str, tuple[int, ...]]:
    d, F = config.hidden_size, config.expert_width
    router, names = expert_names(config, n)
    shapes: dict[str, tuple[int, ...]] = {router: (d, config.num_local_experts)}
    for gate, up, down in zip(*names, strict=True):
        shapes |= {gate: (d, F), up: (d, F), down: (F, d)}
    return shapes


def init_params(
    config: LlamaConfig, rng: np.random.Generator, dtype: type[np.floating] = np.float32
) -> dict[str, np.ndarray]:
    """Fresh parameters as Hugging Face starts them.

    Weights N(0, initializer_range²), gains 1, biases 0.
    """
    params = {}
    for name, shape in param_shapes(config).items():
        if name.endswith("bias"):
            params[name] = np.zeros(shape, dtype)
        elif len(shape) == 1:
            params[name] = np.ones(shape, dtype)
        else:
            params[name] = (config.initializer_range * rng.standard_normal(shape)).astype(dtype)
    return params
