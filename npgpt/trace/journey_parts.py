"""What a journey reads of a model, for each architecture that has one: GPT-2 and Llama.

Where they differ: names and sizes, the last norm, what a neuron of the FFN is, which heads share
keys, and what says the position. Another decoder takes one more function like the two here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from npgpt.models.gpt2.model import GPT2, GPT2Saved
from npgpt.models.gpt2.model import BlockSaved as GPT2Block
from npgpt.models.llama.model import BlockSaved as LlamaBlock
from npgpt.models.llama.model import Llama, LlamaSaved
from npgpt.ops.layer_norm import layer_norm_forward
from npgpt.ops.rms_norm import rms_norm_forward


class Neurons(NamedTuple):
    """The F neurons of one FFN in a pass."""

    active: np.ndarray  # [T, F], what each one multiplies its row with
    rows: np.ndarray  # [F, d]
    strength: np.ndarray  # [T, F], how active that is
    factors: dict[str, np.ndarray]  # what `active` is the product of, if it is one: [T, F] each


class Parts(NamedTuple):
    """One model's parts; functions where architectures compute otherwise."""

    block: str  # block n is the station block.n
    attn: str  # … and its attention block.n.attn
    norm: str  # the last one
    n_layer: int
    n_head: int
    n_group: int  # heads next to each other that share keys and values
    ffn_width: int
    detects: str  # in words, what a neuron detects with and answers with,
    active: str  # and what its activation is
    last_norm: Callable[[Any, np.ndarray], np.ndarray]  # (model, [..., d]) -> [..., d]
    held_norm: Callable[[Any, int, np.ndarray], np.ndarray]  # see `_gpt2_held_norm`
    neurons: Callable[[Any], Neurons]  # of what a block has saved
    # (model, T) -> by how much further each position turns a pair [d_h/2]; [0] if nothing turns
    speeds: Callable[[Any, int], np.ndarray]


def parts_of(model: GPT2 | Llama) -> Parts:
    """The parts of a model, by its class."""
    return llama_parts(model) if isinstance(model, Llama) else gpt2_parts(model)


def gpt2_parts(model: GPT2) -> Parts:
    """LayerNorm, a position table, neurons that bend what a column of W_1 says."""
    config = model.config
    return Parts(
        block="h",
        attn="attn",
        norm="ln_f",
        n_layer=config.n_layer,
        n_head=config.n_head,
        n_group=1,
        ffn_width=config.ffn_width,
        detects="a column of W_1 detects, a row of W_2 answers",
        active="the activation",
        last_norm=_gpt2_last_norm,
        held_norm=_gpt2_held_norm,
        neurons=_gpt2_neurons,
        speeds=lambda model, T: np.zeros(0),  # noqa: ARG005
    )


def llama_parts(model: Llama) -> Parts:
    """RMSNorm, turned queries and keys, shared keys, neurons that are a gate times a value."""
    config = model.config
    return Parts(
        block="layers",
        attn="self_attn",
        norm="norm",
        n_layer=config.num_hidden_layers,
        n_head=config.num_attention_heads,
        n_group=config.num_attention_heads // config.n_kv_head,
        ffn_width=config.intermediate_size,
        detects="columns of W_gate and W_up detect, a row of W_down answers",
        active=f"gate × value, which are {config.hidden_act}(x W_gate) and x W_up",
        last_norm=_llama_last_norm,
        held_norm=_llama_held_norm,
        neurons=_llama_neurons,
        speeds=lambda model, T: model.config.frequencies(T),
    )


def heads_that_share(parts: Parts, head: int) -> list[int]:
    """The heads that look at the same keys and values as `head`, itself included."""
    first = head // parts.n_group * parts.n_group
    return list(range(first, first + parts.n_group))


def _gpt2_last_norm(model: GPT2, x: np.ndarray) -> np.ndarray:
    weight, bias = model.params["ln_f.weight"], model.params["ln_f.bias"]
    return layer_norm_forward(x, weight, bias, eps=model.config.layer_norm_epsilon)[0]


def _llama_last_norm(model: Llama, x: np.ndarray) -> np.ndarray:
    return rms_norm_forward(x, model.params["norm.weight"], eps=model.config.rms_norm_eps)[0]


def _gpt2_held_norm(saved: GPT2Saved, position: int, x: np.ndarray) -> np.ndarray:
    """A part of the stream [..., d] through the last norm, as it scaled this position in the pass.

    Scaled by what the whole stream was, the parts add up (with the bias) to the norm of the whole.
    """
    _, rstd, gain = saved.ln_f
    return (x - x.mean(axis=-1, keepdims=True)) * rstd[position] * gain


def _llama_held_norm(saved: LlamaSaved, position: int, x: np.ndarray) -> np.ndarray:
    _, rrms, gain = saved.norm
    return x * rrms[position] * gain


def _gpt2_neurons(block: GPT2Block) -> Neurons:
    bent, W_2 = block.mlp.c_proj
    return Neurons(bent, W_2, strength=bent, factors={})


def _llama_neurons(block: LlamaBlock) -> Neurons:
    """The value has either sign, so a neuron is as active far below zero as above.

    x W_up is called value because "up" already says what a neuron does to tokens.
    """
    mixed, W_down = block.mlp.down_proj
    factors = {"gate": block.mlp.gate, "value": block.mlp.up}
    return Neurons(mixed, W_down, strength=np.abs(mixed), factors=factors)
