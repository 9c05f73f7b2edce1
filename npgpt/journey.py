"""One token's way through a GPT-2, measured on one ordinary forward pass.

What every sublayer adds to the residual stream, what the model would say after each block, where
a head looks, what neurons of the FFN push. Reads the stations and what is saved for backward;
computes no layer again. Leaves out printing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npgpt.models.gpt2 import GPT2, GPT2Saved
from npgpt.ops.layer_norm import layer_norm_forward
from npgpt.ops.lm_head import lm_head_forward
from npgpt.ops.softmax import softmax_forward

Tokens = list[tuple[int, float]]  # ids with a probability, or with what is added to their logit


class Pass(NamedTuple):
    """A forward pass over one text that was observed."""

    model: GPT2
    ids: list[int]
    stations: dict[str, np.ndarray]
    saved: GPT2Saved


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
    """The stream at one position read through ln_f and lm_head, as if the rest were left out."""

    station: str
    norm: float
    likeliest: Tokens
    rank: int  # of the target, 1 is the likeliest
    probability: float  # of the target


class Neuron(NamedTuple):
    """One of the FFN's F neurons at one position: column of W_1, row of W_2."""

    number: int  # 0 … F - 1
    activation: float
    answer: float  # norm of activation times row
    most_at: int  # the position where its activation is largest
    most: float
    up: Tokens
    down: Tokens


def observe_pass(model: GPT2, ids: list[int]) -> Pass:
    """Run the model; raises what `GPT2.forward` raises."""
    stations: dict[str, np.ndarray] = {}
    saved = model.forward(ids, observe=stations.__setitem__).saved
    return Pass(model, ids, stations, saved)


def corrections(seen: Pass) -> list[Correction]:
    """Two a block, in order (article 9.1)."""
    stream, found = seen.stations["embed"], []
    for n in range(seen.model.config.n_layer):
        for station in (f"h.{n}.attn", f"h.{n}.mlp"):
            added = seen.stations[station]
            found.append(Correction(station, _norms(stream), _norms(added)))
            stream = stream + added
    return found


def guesses(seen: Pass, position: int, target: int, top: int) -> list[Guess]:
    """After the embedding and after each block: the `top` likeliest next tokens, and the target."""
    params, config = seen.model.params, seen.model.config
    names = ["embed", *(f"h.{n}" for n in range(config.n_layer))]
    rows = np.stack([seen.stations[name][position] for name in names])  # [1 + L, d]
    normed, _ = layer_norm_forward(
        rows, params["ln_f.weight"], params["ln_f.bias"], eps=config.layer_norm_epsilon
    )
    logits, _ = lm_head_forward(normed, _head_table(seen))
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
    layers = range(seen.model.config.n_layer) if layer is None else [layer]
    rows = np.stack([seen.stations[f"h.{n}.attn.probs"][:, position] for n in layers])
    weights = rows[..., 1:position] if position > 1 else rows  # [layers, H, positions]
    place, head, _ = np.unravel_index(np.argmax(weights), weights.shape)
    return layers[int(place)], int(head)


def resting_heads(seen: Pass, position: int) -> int:
    """How many heads give more than half of the position's weight to the first token."""
    layers = range(seen.model.config.n_layer)
    return sum(
        int((seen.stations[f"h.{n}.attn.probs"][:, position, 0] > 0.5).sum()) for n in layers
    )


def strongest_neurons(seen: Pass, layer: int, position: int, top: int) -> list[Neuron]:
    """The `top` neurons of a block's FFN whose answers are largest at a position (article 8.3).

    What one pushes is its answer, activation times row of W_2, read through ln_f (its scale held
    as it is) and lm_head: in the last block exactly its share in the logits, in an earlier one what
    reaches them directly, past the blocks between.
    """
    bent, W_2 = seen.saved.blocks[layer].mlp.c_proj  # [T, F], [F, d]
    size = np.abs(bent[position]) * np.linalg.norm(W_2, axis=1)
    chosen = np.argsort(-size, kind="stable")[:top]
    answers = bent[position, chosen, None] * W_2[chosen]  # [top, d]
    _, rstd, gain = seen.saved.ln_f
    centred = answers - answers.mean(axis=-1, keepdims=True)
    pushes, _ = lm_head_forward(centred * rstd[position] * gain, _head_table(seen))
    return [
        Neuron(
            number=int(j),
            activation=float(bent[position, j]),
            answer=float(size[j]),
            most_at=int(np.argmax(bent[:, j])),
            most=float(bent[:, j].max()),
            up=_largest(push, top),
            down=[(token, -x) for token, x in _largest(-push, top)],
        )
        for j, push in zip(chosen, pushes, strict=True)
    ]


def _head_table(seen: Pass) -> np.ndarray:
    """The table [V, d] that lm_head multiplies with."""
    return seen.saved.lm_head[1]


def _norms(x: np.ndarray) -> Any:
    return np.linalg.norm(x, axis=-1)


def _largest(row: np.ndarray, top: int) -> Tokens:
    order = np.argsort(-row, kind="stable")[:top]
    return [(int(i), float(row[i])) for i in order]
