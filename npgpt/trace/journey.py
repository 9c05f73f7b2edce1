"""One token's way through a GPT-2 or a Llama, measured on one ordinary forward pass.

What every sublayer adds to the residual stream, what the model would say after each block, where
a head looks, what neurons of the FFN push. Reads the stations and what is saved for backward;
computes no layer again. What differs by architecture is in `journey_parts.py`. Leaves out printing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npgpt.models.gpt2.model import GPT2, GPT2Saved
from npgpt.models.llama.model import Llama, LlamaSaved
from npgpt.ops.lm_head import lm_head_forward
from npgpt.ops.softmax import softmax_forward
from npgpt.trace.journey_parts import Parts, parts_of

Tokens = list[tuple[int, float]]  # ids with a probability, or with what is added to their logit


class Pass(NamedTuple):
    """A forward pass over one text that was observed."""

    model: GPT2 | Llama
    ids: list[int]
    stations: dict[str, np.ndarray]
    saved: GPT2Saved | LlamaSaved
    parts: Parts


class Correction(NamedTuple):
    """What a sublayer adds, as norms at every position [T]: of the stream before, of the sum."""

    station: str
    stream: np.ndarray
    added: np.ndarray

    @property
    def ratio(self) -> np.ndarray:
        """‖added‖ / ‖stream‖ [T]."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.added / self.stream


class Guess(NamedTuple):
    """The stream at one position read through the last norm and lm_head, the rest left out."""

    station: str
    norm: float
    likeliest: Tokens
    rank: int  # of the target, 1 is the likeliest
    probability: float  # of the target


class Neuron(NamedTuple):
    """One of the FFN's F neurons at one position: what it detects with, and its row of W_2."""

    number: int  # 0 … F - 1
    activation: float
    factors: dict[str, float]  # gate and value, whose product a Llama's activation is
    answer: float  # norm of activation times row
    most_at: int  # the position where its activation is largest, whatever sign a product has
    most: float
    up: Tokens
    down: Tokens


def observe_pass(model: GPT2 | Llama, ids: list[int]) -> Pass:
    """Run the model; raises what its `forward` raises."""
    stations: dict[str, np.ndarray] = {}
    saved = model.forward(ids, observe=stations.__setitem__).saved
    return Pass(model, ids, stations, saved, parts_of(model))


def block_station(parts: Parts, n: int) -> str:
    """The station of block n: "h.3", "layers.3"."""
    return f"{parts.block}.{n}"


def weight_station(parts: Parts, n: int) -> str:
    """The station of block n's weight tables [H, T, T]."""
    return f"{parts.block}.{n}.{parts.attn}.probs"


def corrections(seen: Pass) -> list[Correction]:
    """Two a block, in order (article 9.1)."""
    stream, found = seen.stations["embed"], []
    for n in range(seen.parts.n_layer):
        for part in (seen.parts.attn, "mlp"):
            station = f"{block_station(seen.parts, n)}.{part}"
            added = seen.stations[station]
            found.append(Correction(station, _norms(stream), _norms(added)))
            stream = stream + added
    return found


def guesses(seen: Pass, position: int, target: int, top: int) -> list[Guess]:
    """After the embedding and after each block: the `top` likeliest next tokens, and the target."""
    names = ["embed", *(block_station(seen.parts, n) for n in range(seen.parts.n_layer))]
    rows = np.stack([seen.stations[name][position] for name in names])  # [1 + L, d]
    logits, _ = lm_head_forward(seen.parts.last_norm(seen.model, rows), _head_table(seen))
    probs, _ = softmax_forward(logits, axis=-1)
    return [
        Guess(
            station=name,
            norm=float(_norms(row)),
            likeliest=_largest(p, top),
            rank=1 + int((p > p[target]).sum()),
            probability=float(p[target]),
        )
        for name, row, p in zip(names, rows, probs, strict=True)
    ]


def looking_head(seen: Pass, position: int, layer: int | None = None) -> tuple[int, int]:
    """(layer, head) with the largest weight on one earlier token other than the first.

    The first is left out because heads with nothing to look for rest there (article 7.6); where no
    other earlier token exists, all count. `layer` None searches all of them.
    """
    layers = range(seen.parts.n_layer) if layer is None else [layer]
    rows = np.stack([_tables(seen, n)[:, position] for n in layers])
    weights = rows[..., 1:position] if position > 1 else rows  # [layers, H, positions]
    place, head, _ = np.unravel_index(np.argmax(weights), weights.shape)
    return layers[int(place)], int(head)


def resting_heads(seen: Pass, position: int) -> int:
    """How many heads give more than half of the position's weight to the first token."""
    layers = range(seen.parts.n_layer)
    return sum(int((_tables(seen, n)[:, position, 0] > 0.5).sum()) for n in layers)


def strongest_neurons(seen: Pass, layer: int, position: int, top: int) -> list[Neuron]:
    """The `top` neurons of a block's FFN whose answers are largest at a position (article 8.3).

    What one pushes is its answer, activation times row of W_2, read through the last norm (its
    scale held as it is) and lm_head: in the last block exactly its share in the logits, in an
    earlier one what reaches them directly, past the blocks between.
    """
    active, rows, strength, factors = seen.parts.neurons(seen.saved.blocks[layer])  # [T, F], [F, d]
    size = np.abs(active[position]) * np.linalg.norm(rows, axis=1)
    chosen = np.argsort(-size, kind="stable")[:top]
    most_at = np.argmax(strength[:, chosen], axis=0)
    answers = active[position, chosen, None] * rows[chosen]  # [top, d]
    normed = seen.parts.held_norm(seen.saved, position, answers)
    pushes, _ = lm_head_forward(normed, _head_table(seen))
    return [
        Neuron(
            number=int(j),
            activation=float(active[position, j]),
            factors={name: float(factor[position, j]) for name, factor in factors.items()},
            answer=float(size[j]),
            most_at=int(t),
            most=float(active[t, j]),
            up=_largest(push, top),
            down=[(token, -x) for token, x in _largest(-push, top)],
        )
        for j, t, push in zip(chosen, most_at, pushes, strict=True)
    ]


def _tables(seen: Pass, n: int) -> np.ndarray:
    return seen.stations[weight_station(seen.parts, n)]


def _head_table(seen: Pass) -> np.ndarray:
    """The table [V, d] that lm_head multiplies with."""
    return seen.saved.lm_head[1]


def _norms(x: np.ndarray) -> Any:
    return np.linalg.norm(x, axis=-1)


def _largest(row: np.ndarray, top: int) -> Tokens:
    order = np.argsort(-row, kind="stable")[:top]
    return [(int(i), float(row[i])) for i in order]
