"""Where Hugging Face transformers has each architecture's stations: classes, modules, outputs.

Stations are called as its modules are (`stations.py`), so that names are all there is to say.
Leaves out running them (`reference.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Stack(NamedTuple):
    """Layers one after the other."""

    embed: str  # the station of what the first layer reads
    layers: str  # the module that lists them
    parts: tuple[str, ...]  # those modules of a layer whose outputs are stations
    tables: dict[str, str]  # station of a layer's attention weights -> where the output has them


class Names(NamedTuple):
    """One class of transformers."""

    cls: str
    stacks: tuple[Stack, ...]
    last: tuple[str, ...] = ()  # the module behind the layers whose output is a station
    spare: tuple[str, ...] = ()  # how parameters begin that npgpt does not have


GPT2 = Stack("embed", "h", ("attn", "mlp"), {"attn.probs": "attentions"})
LLAMA = Stack("embed", "layers", ("self_attn", "mlp"), {"self_attn.probs": "attentions"})
BERT = Stack(
    "embed",
    "encoder.layer",
    ("attention.output.dense", "attention.output.LayerNorm", "output.dense"),
    {"attention.self.probs": "attentions"},
)
ENCODER = Stack(
    "encoder.embed",
    "encoder.layers",
    ("self_attn", "self_attn_layer_norm", "fc2"),
    {"self_attn.probs": "encoder_attentions"},
)
DECODER = Stack(
    "decoder.embed",
    "decoder.layers",
    ("self_attn", "self_attn_layer_norm", "encoder_attn", "encoder_attn_layer_norm", "fc2"),
    {"self_attn.probs": "decoder_attentions", "encoder_attn.probs": "cross_attentions"},
)
SINUSOIDS = ("model.encoder.embed_positions.", "model.decoder.embed_positions.")
NAMES = {
    "gpt2": Names("GPT2LMHeadModel", (GPT2,), ("ln_f",)),
    "llama": Names("LlamaForCausalLM", (LLAMA,), ("norm",)),
    "bart": Names("BartForConditionalGeneration", (ENCODER, DECODER)),
    "marian": Names("MarianMTModel", (ENCODER, DECODER), spare=SINUSOIDS),
}


def names_of(kind: str, params: Collection[str]) -> Names:
    """The names for a `model_type`; `params` says which heads a BERT has, which tables a bart."""
    if kind == "bert":
        return _names_of_bert(params)
    if kind == "bart" and "shared.weight" not in params:
        return NAMES[kind]._replace(spare=("model.shared.",))  # the two sides have their own
    return NAMES[kind]


def _names_of_bert(params: Collection[str]) -> Names:
    last = ("pooler",) if "pooler.dense.weight" in params else ()
    if "cls.predictions.bias" not in params:
        return Names("BertModel", (BERT,), last, () if last else ("pooler.",))
    if last:
        return Names("BertForPreTraining", (BERT,), last, ("cls.seq_relationship.",))
    return Names("BertForMaskedLM", (BERT,))


def check_counterpart(kind: str) -> None:
    """Raise ValueError for a `model_type` that transformers does not know."""
    if kind == "transformer":
        raise ValueError(
            "transformers has no counterpart of the paper's own layout (model_type 'transformer'); "
            "compare with a file (--against FILE), or write npgpt's stations to one (--dump FILE)."
        )
