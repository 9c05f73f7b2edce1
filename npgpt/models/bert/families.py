"""What sets BERT's relatives apart: the names in their checkpoints, and a line or two of the pass.

bert                                BERT
roberta, xlm-roberta, camembert     BERT trained longer; its positions count real tokens
distilbert                          a smaller BERT without token types and without pooler
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Parts(NamedTuple):
    """The parts of a layer: names of parameters without `.weight`, and of stations."""

    attention: str  # what q, k, v, scores, probs and context belong to; no parameters
    query: str
    key: str
    value: str
    out: str
    attn_norm: str
    wide: str
    activation: str  # no parameters
    narrow: str
    norm: str


class Family(NamedTuple):
    """BERT, or one of its relatives."""

    cls: str  # transformers' classes: …Model, …ForMaskedLM
    prefix: str  # of all names but those of the MLM head
    layers: str
    parts: Parts
    head: str  # how the names of the MLM head begin
    transform: str
    transform_norm: str
    decoder: str
    bias: str
    mask_id: int  # of the mask token in the vocabulary that it was published with
    pooler: str | None = "pooler.dense"
    has_types: bool = True
    counts_tokens: bool = False  # whether positions pass over padding; see `positions_of`
    head_act: str | None = None  # the MLM head's activation; None: that of the layers
    defaults: Mapping[str, Any] = {}  # what a silent config.json means, unless what BERT's does
    renamed: Mapping[str, str] = {}  # setting -> its name in config.json

    def layer(self, n: int) -> Parts:
        """The parts of layer n by their full names."""
        return Parts(*(f"{self.layers}.{n}.{part}" for part in self.parts))


BERT = Family(
    cls="Bert",
    prefix="bert.",
    layers="encoder.layer",
    parts=Parts(
        attention="attention.self",
        query="attention.self.query",
        key="attention.self.key",
        value="attention.self.value",
        out="attention.output.dense",
        attn_norm="attention.output.LayerNorm",
        wide="intermediate.dense",
        activation="intermediate",
        narrow="output.dense",
        norm="output.LayerNorm",
    ),
    head="cls.predictions.",
    transform="cls.predictions.transform.dense",
    transform_norm="cls.predictions.transform.LayerNorm",
    decoder="cls.predictions.decoder",
    bias="cls.predictions.bias",
    mask_id=103,
)
ROBERTA = BERT._replace(
    cls="Roberta",
    prefix="roberta.",
    head="lm_head.",
    transform="lm_head.dense",
    transform_norm="lm_head.layer_norm",
    decoder="lm_head.decoder",
    bias="lm_head.bias",
    mask_id=50264,
    counts_tokens=True,
    head_act="gelu",
    defaults={"vocab_size": 50265, "pad_token_id": 1},
)
# Of other languages, whose vocabularies have other sizes; a silent config.json means BERT's.
OTHER_LANGUAGES = ROBERTA._replace(defaults={"pad_token_id": 1})
DISTILBERT = Family(
    cls="DistilBert",
    prefix="distilbert.",
    layers="transformer.layer",
    parts=Parts(
        attention="attention",
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        out="attention.out_lin",
        attn_norm="sa_layer_norm",
        wide="ffn.lin1",
        activation="ffn.activation",
        narrow="ffn.lin2",
        norm="output_layer_norm",
    ),
    head="vocab_",
    transform="vocab_transform",
    transform_norm="vocab_layer_norm",
    decoder="vocab_projector",
    bias="vocab_projector.bias",
    mask_id=103,
    pooler=None,
    has_types=False,
    defaults={"n_layers": 6},
    renamed={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    },
)
FAMILIES = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": OTHER_LANGUAGES._replace(cls="XLMRoberta", mask_id=250001),
    "camembert": OTHER_LANGUAGES._replace(cls="Camembert", mask_id=32004),
    "distilbert": DISTILBERT,
}


def family_of(model_type: Any) -> Family:
    """The family of a `model_type`; ValueError for one that is no BERT."""
    if model_type not in list(FAMILIES):  # a list takes any JSON value
        raise ValueError(
            f"model_type is {model_type!r:.60}, but must be one of {', '.join(FAMILIES)}."
        )
    return FAMILIES[model_type]
