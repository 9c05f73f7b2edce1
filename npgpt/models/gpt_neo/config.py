"""GPT-Neo's sizes and options (config.json): GPT-2's under other names, and how far a block sees.

Fields have the names of GPT-2's `config.json`; `RENAMED` says what GPT-Neo's calls them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from npgpt.files.kinds import Blocks, Probability, Size, is_id
from npgpt.models.gpt2.config import KEYS as GPT2_KEYS
from npgpt.models.gpt2.config import GPT2Config, Shapes
from npgpt.models.settings import Keys, as_raw, check_config, check_heads, naming, read_settings

RENAMED = {
    "n_positions": "max_position_embeddings",
    "n_embd": "hidden_size",
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "n_inner": "intermediate_size",
    "embd_pdrop": "embed_dropout",
    "attn_pdrop": "attention_dropout",
    "resid_pdrop": "resid_dropout",
}
KINDS = ("global", "local")  # of blocks
SCALES = ("scale_attn_weights", "scale_attn_by_inverse_layer_idx")  # of GPT-2 alone
KEYS = Keys(
    aliases={"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
    fixed={**GPT2_KEYS.fixed, **dict.fromkeys(SCALES, (False, "a GPT-Neo scales no scores"))},
    no_effect=(*GPT2_KEYS.no_effect, "attention_layers", "classifier_dropout"),
    renamed=RENAMED,
)


@dataclass(frozen=True)
class GPTNeoConfig(GPT2Config):
    """What `config.json` says of a GPT-Neo; the defaults are those of the one with 1.3 billion."""

    n_positions: Size = 2048
    n_embd: Size = 2048
    n_layer: Blocks = 24
    n_head: Size = 16
    scale_attn_weights: bool = False
    embd_pdrop: Probability = 0.0
    attn_pdrop: Probability = 0.0
    resid_pdrop: Probability = 0.0
    # [[["global", "local"], 12]]: so many times these blocks, one after the other.
    attention_types: list[Any] = field(default_factory=lambda: [[["global", "local"], 12]])
    window_size: Size = 256  # how many tokens a local block sees, itself included

    def __post_init__(self) -> None:
        """Raises ValueError for what no GPT-Neo can be."""
        check_config(self, RENAMED)
        check_heads(self, "n_embd", "n_head", RENAMED)
        blocks = 0
        for group in self.attention_types:
            match group:
                case [[*kinds], times] if is_id(times) and all(kind in KINDS for kind in kinds):
                    blocks += len(kinds) * times
                case _:
                    raise ValueError(
                        f"attention_types is {self.attention_types!r:.60}, but must be like "
                        '[[["global", "local"], 12]].'
                    )
        if blocks != self.n_layer:
            raise ValueError(
                f"attention_types {self.attention_types!r:.60} are {blocks} blocks, but num_layers "
                f"is {self.n_layer}."
            )

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], where: str = "config.json") -> GPTNeoConfig:
        """Read and check a parsed `config.json`; `where` names the file in errors.

        Raises ValueError, one sentence, for a model that is not GPT-Neo, sizes that are not
        positive integers, an unknown activation, and blocks that are neither global nor local.
        """
        listed = raw.get("attention_layers")  # the same, block by block
        if listed is not None and raw.get("attention_types") is None:
            raw = {**raw, "attention_types": [[listed, 1]]}
        settings = read_settings(cls, raw, where, model_type="gpt_neo", keys=KEYS)
        with naming(where):
            config = cls(**settings)
            if listed is not None and listed != config.layers:
                raise ValueError(
                    f"attention_layers {listed!r:.60} are not those of attention_types "
                    f"{config.attention_types!r:.60}; leave one of the two out."
                )
        return config

    def to_dict(self) -> dict[str, Any]:
        """The content of `config.json`, with every key that was read."""
        raw = as_raw(self, RENAMED, architectures=["GPTNeoForCausalLM"], model_type="gpt_neo")
        return {name: value for name, value in raw.items() if name not in SCALES}

    @property
    def layers(self) -> list[str]:
        """Of each block "global" or "local"."""
        return [kind for kinds, times in self.attention_types for kind in kinds * times]

    @property
    def windows(self) -> list[int | None]:
        """How many tokens each block sees, itself included; None: all before it."""
        return [None if kind == "global" else self.window_size for kind in self.layers]

    @property
    def attention_shapes(self) -> Shapes:
        """Name -> shape of the attention's parameters, without `h.N.`."""
        d, attn = self.n_embd, "attn.attention"
        matrices = {f"{attn}.{part}_proj.weight": (d, d) for part in ("k", "v", "q", "out")}
        return {**matrices, f"{attn}.out_proj.bias": (d,)}
