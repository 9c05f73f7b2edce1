"""What `python -m npgpt.trace` computes: one token's way through a GPT-2 or a Llama.

All of it comes from one ordinary forward pass, from its stations and from what it saved for
backward: what each sublayer adds to the residual stream, what the model would say after each block
(the logit lens), where a head looks, what the neurons of an FFN push. No layer is computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from npgpt.models.common import of
from npgpt.models.gpt2.model import GPT2, GPT2Saved
from npgpt.models.llama.model import Llama, LlamaSaved
from npgpt.ops.layer_norm import layer_norm_forward
from npgpt.ops.lm_head import lm_head_forward
from npgpt.ops.rms_norm import rms_norm_forward
from npgpt.ops.softmax import softmax_forward


class Neurons(NamedTuple):
    """The F neurons of one FFN in a pass."""

    active: np.ndarray  # [T, F], what each one multiplies its row with
    rows: np.ndarray  # [F, d], of W_2
    strength: np.ndarray  # [T, F], how active that is
    factors: dict[str, np.ndarray]  # where `active` is a product, what of: [T, F] each


class LensView(NamedTuple):
    """What GPT-2 and Llama have under other names or compute in other ways."""

    block: str
    attn: str
    norm: str  # the last one
    n_layer: int
    n_head: int
    n_group: int  # heads next to each other that share keys and values
    ffn_width: int
    detects: str  # in words, what a neuron detects with and answers with,
    active: str  # and what its activation is
    last_norm: Callable[[np.ndarray], np.ndarray]  # [..., d] -> [..., d]
    norm_with_fixed_scale: Callable[[Any, int, np.ndarray], np.ndarray]
    neurons: Callable[[Any, int], Neurons]  # (what the pass saved, block)
    frequencies: Callable[[int], np.ndarray] | None  # T -> [d_h/2], radians a position

    def block_station(self, n: int) -> str:
        """The station of block n: "h.3", "layers.3"."""
        return f"{self.block}.{n}"

    def weights_station(self, n: int) -> str:
        """The station of block n's attention weights [H, T, T]."""
        return f"{self.block}.{n}.{self.attn}.probs"

    def heads_that_share(self, head: int) -> list[int]:
        """The heads that look at the same keys and values as `head`, itself included."""
        first = head // self.n_group * self.n_group
        return list(range(first, first + self.n_group))


def view_of(model: GPT2 | Llama) -> LensView:
    """The view of a model; another decoder needs one more function like the two below."""
    return _llama_view(model) if isinstance(model, Llama) else _gpt2_view(model)


def _gpt2_view(model: GPT2) -> LensView:
    config = model.config
    return LensView(
        block="h",
        attn="attn",
        norm="ln_f",
        n_layer=config.n_layer,
        n_head=config.n_head,
        n_group=1,
        ffn_width=config.ffn_width,
        detects="a column of W_1 detects, a row of W_2 answers",
        active="the activation",
        last_norm=lambda x: layer_norm_forward(
            x, *of(model.params, "ln_f"), eps=config.layer_norm_epsilon
        )[0],
        norm_with_fixed_scale=_layer_norm_with_fixed_scale,
        neurons=_gpt2_neurons,
        frequencies=None,
    )


def _llama_view(model: Llama) -> LensView:
    config = model.config
    return LensView(
        block="layers",
        attn="self_attn",
        norm="norm",
        n_layer=config.num_hidden_layers,
        n_head=config.num_attention_heads,
        n_group=config.num_attention_heads // config.n_kv_head,
        ffn_width=config.intermediate_size,
        detects="columns of W_gate and W_up detect, a row of W_down answers",
        active=f"gate × value, which are {config.hidden_act}(x W_gate) and x W_up",
        last_norm=lambda x: rms_norm_forward(
            x, model.params["norm.weight"], eps=config.rms_norm_eps
        )[0],
        norm_with_fixed_scale=_rms_norm_with_fixed_scale,
        neurons=_llama_neurons,
        frequencies=config.rotary.frequencies,
    )


def _layer_norm_with_fixed_scale(saved: GPT2Saved, position: int, x: np.ndarray) -> np.ndarray:
    """A part of the stream [..., d] through the last norm, scaled as this position was in the pass.

    With the scale of the whole stream, the norms of its parts and the bias sum to its norm.
    """
    _, rstd, gain = saved.ln_f
    return (x - x.mean(axis=-1, keepdims=True)) * rstd[position] * gain


def _rms_norm_with_fixed_scale(saved: LlamaSaved, position: int, x: np.ndarray) -> np.ndarray:
    _, rrms, gain = saved.norm
    return x * rrms[position] * gain


def _gpt2_neurons(saved: GPT2Saved, layer: int) -> Neurons:
    activated, W_2 = saved.blocks[layer].mlp.c_proj
    return Neurons(activated, W_2, strength=activated, factors={})


def _llama_neurons(saved: LlamaSaved, layer: int) -> Neurons:
    """The value may be negative, so a neuron is as active far below zero as far above.

    x W_up is called value because "up" already says what a neuron does to tokens.
    """
    mlp = saved.blocks[layer].mlp
    product, W_down, _ = mlp.down_proj
    factors = {"gate": mlp.gate, "value": mlp.up}
    return Neurons(product, W_down, strength=np.abs(product), factors=factors)


class Observed(NamedTuple):
    """An observed forward pass over one text."""

    ids: list[int]
    stations: dict[str, np.ndarray]
    saved: GPT2Saved | LlamaSaved
    view: LensView

    def attention_weights(self, n: int) -> np.ndarray:
        """Those of block n [H, T, T]."""
        return self.stations[self.view.weights_station(n)]

    def logits_of(self, normed: np.ndarray) -> np.ndarray:
        """Normed rows [N, d] through lm_head: [N, V]."""
        _, table = self.saved.lm_head
        return lm_head_forward(normed, table)[0]


def observe(model: GPT2 | Llama, ids: list[int]) -> Observed:
    """Run the model; raises what its `forward` raises."""
    stations: dict[str, np.ndarray] = {}
    saved = model.forward(ids, observe=stations.__setitem__).saved
    return Observed(ids, stations, saved, view_of(model))


class Token(NamedTuple):
    """A token of the text."""

    id: int


class Target(NamedTuple):
    """The token that follows in the text, or else the model's own answer."""

    id: int
    follows_in_text: bool


class Likely(NamedTuple):
    """A token that may come next."""

    id: int
    probability: float


class Push(NamedTuple):
    """A token, and what is added to its logit."""

    id: int
    logit: float


class Correction(NamedTuple):
    """What a sublayer adds: norms at every position [T], of the stream before and of the sum."""

    station: str
    stream: np.ndarray
    added: np.ndarray
    ratio: np.ndarray  # added / stream
    ratio_at_position: float


class LensRow(NamedTuple):
    """The stream at one position read by the last norm and lm_head, all later blocks skipped."""

    station: str
    norm: float
    likeliest: list[Likely]
    rank: int  # of the target, 1 is the likeliest
    probability: float  # of the target


class Head(NamedTuple):
    """The head that is shown, and whether it and its block were chosen rather than given."""

    layer: int
    head: int
    head_chosen: bool
    layer_chosen: bool
    shares_keys_with: list[int] | None
    probs: np.ndarray  # [T, T]


class Neuron(NamedTuple):
    """One of the FFN's neurons at one position."""

    number: int  # 0 … F - 1
    activation: float
    answer: float  # norm of activation times row of W_2
    most_at: int  # the position where it is most active
    most: float  # its activation there
    up: list[Push]
    down: list[Push]
    gate: float | None = None  # in a Llama the activation is gate times value
    value: float | None = None


class FFN(NamedTuple):
    """The strongest neurons of one block."""

    layer: int
    neurons: list[Neuron]


class Trace(NamedTuple):
    """Everything there is to say about one position of one text; `--json` prints these fields."""

    model: str
    dtype: str
    text: str  # "" without a vocabulary
    tokens: list[Token]
    position: int
    target: Target
    shapes: dict[str, list[int]]  # of all stations
    corrections: list[Correction]
    logit_lens: list[LensRow]
    rotary_angles: np.ndarray | None  # by which pairs of a query and key are turned here [d_h/2]
    head: Head
    sink_heads: int
    ffn: FFN


def corrections(seen: Observed, position: int) -> list[Correction]:
    """Two a block, in order (article 9.1)."""
    stream, found = seen.stations["embed"], []
    for n in range(seen.view.n_layer):
        for sublayer in (seen.view.attn, "mlp"):
            station = f"{seen.view.block_station(n)}.{sublayer}"
            added = seen.stations[station]
            sizes = _norms(stream), _norms(added)
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = sizes[1] / sizes[0]
            found.append(Correction(station, *sizes, ratio, float(ratio[position])))
            stream = stream + added
    return found


def logit_lens(seen: Observed, position: int, target: int, top: int) -> list[LensRow]:
    """After the embedding and after each block: the `top` likeliest next tokens, and the target."""
    names = ["embed", *map(seen.view.block_station, range(seen.view.n_layer))]
    rows = np.stack([seen.stations[name][position] for name in names])  # [1 + L, d]
    probs, _ = softmax_forward(seen.logits_of(seen.view.last_norm(rows)), axis=-1)
    return [
        LensRow(
            station=name,
            norm=float(_norms(row)),
            likeliest=[Likely(*each) for each in _largest(p, top)],
            rank=1 + int((p > p[target]).sum()),
            probability=float(p[target]),
        )
        for name, row, p in zip(names, rows, probs, strict=True)
    ]


def sharpest_head(seen: Observed, position: int, layer: int | None = None) -> tuple[int, int]:
    """(layer, head) with the largest weight on one earlier token other than the first.

    The first does not count because heads that look for nothing rest there (article 7.6); where it
    is the only earlier token, all tokens count. `layer` None searches all of them.
    """
    layers = range(seen.view.n_layer) if layer is None else [layer]
    rows = np.stack([seen.attention_weights(n)[:, position] for n in layers])
    weights = rows[..., 1:position] if position > 1 else rows  # [layers, H, positions]
    place, head, _ = np.unravel_index(np.argmax(weights), weights.shape)
    return layers[int(place)], int(head)


def sink_heads(seen: Observed, position: int) -> int:
    """How many heads give more than half of the position's weight to the first token."""
    first = [seen.attention_weights(n)[:, position, 0] for n in range(seen.view.n_layer)]
    return int((np.stack(first) > 0.5).sum())


def strongest_neurons(seen: Observed, layer: int, position: int, top: int) -> list[Neuron]:
    """The `top` neurons of a block's FFN whose answers are largest at a position (article 8.3).

    What one pushes is its answer, activation times row of W_2, read by the last norm (with the
    scale it had in the pass) and lm_head. In the last block that is exactly its share of the
    logits; in an earlier one, what reaches them directly, past the blocks between.
    """
    active, rows, strength, factors = seen.view.neurons(seen.saved, layer)
    size = np.abs(active[position]) * np.linalg.norm(rows, axis=1)
    chosen = np.argsort(-size, kind="stable")[:top]
    most_at = np.argmax(strength[:, chosen], axis=0)
    answers = active[position, chosen, None] * rows[chosen]  # [top, d]
    pushes = seen.logits_of(seen.view.norm_with_fixed_scale(seen.saved, position, answers))
    return [
        Neuron(
            number=int(j),
            activation=float(active[position, j]),
            answer=float(size[j]),
            most_at=int(t),
            most=float(active[t, j]),
            up=[Push(*each) for each in _largest(push, top)],
            down=[Push(token, -x) for token, x in _largest(-push, top)],
            **{name: float(factor[position, j]) for name, factor in factors.items()},
        )
        for j, t, push in zip(chosen, most_at, pushes, strict=True)
    ]


def _norms(x: np.ndarray) -> Any:
    return np.linalg.norm(x, axis=-1)


def _largest(row: np.ndarray, top: int) -> list[tuple[int, float]]:
    order = np.argsort(-row, kind="stable")[:top]
    return [(int(i), float(row[i])) for i in order]
