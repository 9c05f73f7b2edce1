"""GPT-2's sizes and options (config.json), and the parameters that follow from them.

Field names are those of Hugging Face's `config.json`. `n_embd` is the article's d, `n_head` H,
`n_layer` L, `vocab_size` V, `n_inner` F, `n_positions` the context length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npgpt.files.kinds import Blocks, Ids, NonNegative, Probability, Size
from npgpt.models.settings import (
    Activation,
    Keys,
    as_raw,
    check_config,
    check_heads,
    naming,
    read_settings,
)

Shapes = dict[str, tuple[int, ...]]
KEYS = Keys(
    aliases={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    fixed={
        "add_cross_attention": (False, "this GPT-2 has none"),
        "is_causal": (True, "this GPT-2 looks back only"),
        "is_encoder_decoder": (False, "this GPT-2 is one stack"),
    },
    no_effect=(
        "is_decoder",
        "n_ctx",
        "n_special",
        "predict_special_tokens",
        "reorder_and_upcast_attn",  # float32 where others compute in less
        *(f"summary_{of}" for of in ("activation", "first_dropout", "proj_to_labels", "type")),
        "summary_use_proj",
        "tie_encoder_decoder",
    ),
)


@dataclass(frozen=True)
class GPT2Config:
    """What `config.json` says of a GPT-2; the defaults are GPT-2 small (article chapter 1)."""

    vocab_size: Size = 50257
    n_positions: Size = 1024
    n_embd: Size = 768
    n_layer: Blocks = 12
    n_head: Size = 12
    n_inner: Size | None = None  # None: 4 d
    activation_function: Activation = "gelu_new"
    layer_norm_epsilon: NonNegative = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    tie_word_embeddings: bool = True
    initializer_range: float = 0.02
    embd_pdrop: Probability = 0.1
    attn_pdrop: Probability = 0.1
    resid_pdrop: Probability = 0.1
    bos_token_id: int | None = 50256
    eos_token_id: Ids | None = 50256
    # Whatever else the file said; written back on saving.
    other: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for what no GPT-2 can be."""
        check_config(self)
        check_heads(self, "n_embd", "n_head")

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], where: str = "config.json") -> GPT2Config:
        """Read and check a parsed `config.json`; `where` names the file in errors.

        Raises ValueError, one sentence, for a model that is not GPT-2, sizes that are not positive
        integers, an unknown activation, or cross-attention.
        """
        settings = read_settings(cls, raw, where, model_type="gpt2", keys=KEYS)
        with naming(where):
            return cls(**settings)

    def to_dict(self) -> dict[str, Any]:
        """The content of `config.json`, with every key that was read."""
        return as_raw(self, architectures=["GPT2LMHeadModel"], model_type="gpt2")

    @property
    def windows(self) -> list[int | None]:
        """How many tokens each block sees, itself included; here all before it: None."""
        return [None] * self.n_layer

    @property
    def attention_shapes(self) -> Shapes:
        """Name -> shape of the attention's parameters in a block, without `h.N.`."""
        d = self.n_embd
        return {
            "attn.c_attn.weight": (d, 3 * d),
            "attn.c_attn.bias": (3 * d,),
            "attn.c_proj.weight": (d, d),
            "attn.c_proj.bias": (d,),
        }

    @property
    def ffn_width(self) -> int:
        """F: `n_inner`, or 4 d where it is null."""
        return 4 * self.n_embd if self.n_inner is None else self.n_inner

    def attention_divisor(self, layer: int) -> float:
        """What block `layer` divides its scores by in step 3: √d_h unless configured otherwise."""
        divisor = math.sqrt(self.n_embd // self.n_head) if self.scale_attn_weights else 1.0
        return divisor * (layer + 1) if self.scale_attn_by_inverse_layer_idx else divisor


PRESETS = {  # the four sizes that OpenAI published
    "gpt2": GPT2Config(),
    "gpt2-medium": GPT2Config(n_layer=24, n_head=16, n_embd=1024),
    "gpt2-large": GPT2Config(n_layer=36, n_head=20, n_embd=1280),
    "gpt2-xl": GPT2Config(n_layer=48, n_head=25, n_embd=1600),
}


def param_shapes(config: GPT2Config) -> Shapes:
    """Name -> shape of every parameter, in the order of the forward pass (article 11.2).

    Matrices are [in, out], as in GPT-2's own checkpoint. `lm_head.weight` [V, d] exists only when
    the head is not tied to `wte.weight`.
    """
    d, F = config.n_embd, config.ffn_width
    block: Shapes = {
        "ln_1.weight": (d,),
        "ln_1.bias": (d,),
        **config.attention_shapes,
        "ln_2.weight": (d,),
        "ln_2.bias": (d,),
        "mlp.c_fc.weight": (d, F),
        "mlp.c_fc.bias": (F,),
        "mlp.c_proj.weight": (F, d),
        "mlp.c_proj.bias": (d,),
    }
    shapes: Shapes = {
        "wte.weight": (config.vocab_size, d),
        "wpe.weight": (config.n_positions, d),
    }
    for n in range(config.n_layer):
        shapes.update({f"h.{n}.{name}": shape for name, shape in block.items()})
    shapes.update({"ln_f.weight": (d,), "ln_f.bias": (d,)})
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, d)
    return shapes


def init_params(
    config: GPT2Config, rng: np.random.Generator, dtype: type[np.floating] = np.float32
) -> dict[str, np.ndarray]:
    """Fresh parameters as GPT-2 starts: weights N(0, initializer_range²), biases 0, gains 1.

    The projections that write into the residual stream (`c_proj`) start smaller by √(2 L), because
    2 L corrections add up on it (GPT-2 paper, section 2.3).
    """
    params = {}
    for name, shape in param_shapes(config).items():
        std = config.initializer_range
        if name.endswith("c_proj.weight"):
            std /= math.sqrt(2 * config.n_layer)
        if name.endswith(".bias"):
            params[name] = np.zeros(shape, dtype)
        elif ".ln_" in f".{name}":
            params[name] = np.ones(shape, dtype)
        else:
            params[name] = (std * rng.standard_normal(shape)).astype(dtype)
    return params
