"""What a part of the pass is worth: leave it out, or put in what it was for another text.

Two answers for each, in nats. `change` is exact: the loss of a pass with the edit, less that of the
pass as it is. `estimate` is the first-order one, Σ gradient · (new - old), all from a single
backward pass. Where the two part, the loss bends between the old array and the new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from npgpt.models.gpt2.model import GPT2
from npgpt.models.llama.model import Llama
from npgpt.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward
from npgpt.ops.lookup import check_ids
from npgpt.trace.lens import view_of


class Effect(NamedTuple):
    """What an edit at a station does to the loss; `head` is None where all of it is edited."""

    station: str
    head: int | None
    change: float
    estimate: float


def ablate(
    model: GPT2 | Llama,
    ids: Sequence[int] | np.ndarray,
    *,
    heads: Sequence[tuple[int, int]] = (),
    mlps: Sequence[int] = (),
) -> list[Effect]:
    """Switch off heads and feed-forward networks, each by itself, in a text of its own next tokens.

    A head is off where its part of the heads side by side is 0, before W_O; a network, where it
    adds nothing to the residual stream.

    Args:
        ids: [T], at least two.
        heads: (block, head) pairs, counted from 0.
        mlps: blocks.

    Raises:
        ValueError: another model; a block or head that there is not; what `forward` refuses.
    """
    text = _Text(model, ids)
    view = view_of(model)
    edits: list[tuple[str, int | None, np.ndarray]] = []
    for block, head in heads:
        _check("block", block, view.n_layer)
        _check("head", head, view.n_head)
        station = f"{view.block_station(block)}.{view.attn}.context"
        off = text.arrays[station].copy()
        off.reshape(len(off), view.n_head, -1)[:, head] = 0  # [T, H, d_h]
        edits.append((station, head, off))
    for block in mlps:
        _check("block", block, view.n_layer)
        station = f"{view.block_station(block)}.mlp"
        edits.append((station, None, np.zeros_like(text.arrays[station])))
    return [text.effect(*edit) for edit in edits]


def patch(
    model: GPT2 | Llama,
    ids: Sequence[int] | np.ndarray,
    other: Sequence[int] | np.ndarray,
    stations: Sequence[str],
    *,
    positions: Sequence[int] | None = None,
) -> list[Effect]:
    """Put in what a station, each by itself, was when the model read another text of this length.

    Args:
        ids, other: [T] each.
        stations: names, as `forward` shows them to `observe`.
        positions: where; None: at all T.

    Raises:
        ValueError: another model, texts of different lengths, a station that there is not.
    """
    text, source = _Text(model, ids), _Text(model, other)
    if len(text.ids) != len(source.ids):
        raise ValueError(
            f"the texts are {len(text.ids)} and {len(source.ids)} tokens long; patch takes two of "
            "one length."
        )
    effects = []
    for station in stations:
        if station not in text.arrays:
            raise ValueError(
                f"there is no station {station!r}; there are: {', '.join(text.arrays)}"
            )
        new = text.arrays[station].copy()
        rows = slice(None) if positions is None else list(positions)
        new[..., rows, :] = source.arrays[station][..., rows, :]
        effects.append(text.effect(station, None, new))
    return effects


class _Text:
    """One text's pass: what each station was and which gradient arrived there."""

    def __init__(self, model: GPT2 | Llama, ids: Sequence[int] | np.ndarray) -> None:
        if not isinstance(model, GPT2 | Llama):
            raise ValueError(
                f"ablate and patch take a GPT2 or a Llama, not a {type(model).__name__}."
            )
        self.model, self.ids = model, check_ids(ids)
        if self.ids.ndim != 1 or len(self.ids) < 2:
            raise ValueError("ablate and patch take one text of at least two tokens.")
        self.arrays: dict[str, np.ndarray] = {}
        self.gradients: dict[str, np.ndarray] = {}
        out = model.forward(self.ids, observe=self.arrays.__setitem__)
        self.loss, saved = cross_entropy_forward(out.logits[:-1], self.ids[1:])
        dlogits = np.zeros_like(out.logits)
        dlogits[:-1] = cross_entropy_backward(1.0, saved)
        model.backward(dlogits, out.saved, observe=self.gradients.__setitem__)

    def effect(self, station: str, head: int | None, new: np.ndarray) -> Effect:
        """Of `new` in the place of the station's array."""
        logits = self.model.forward(
            self.ids, observe=lambda name, _: new if name == station else None
        ).logits
        loss, _ = cross_entropy_forward(logits[:-1], self.ids[1:])
        old = self.arrays[station]
        moved = np.subtract(new, old, out=np.zeros_like(old), where=new != old)  # not -∞ - -∞
        estimate = float((self.gradients[station] * moved).sum())
        return Effect(station, head, float(loss - self.loss), estimate)


def _check(what: str, number: int, count: int) -> None:
    if not 0 <= number < count:
        raise ValueError(f"there is no {what} {number}; there are {count}, counted from 0.")
