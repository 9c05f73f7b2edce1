"""What a part of the pass is worth: leave it out, or put in what it was for another text.

Two answers for each, in nats. `change` is exact: the loss of a pass with the edit, less that of the
pass as it is. `estimate` is the first-order one, Σ gradient · (new - old), all from a single
backward pass. Where the two part, the loss bends between the old array and the new.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from npgpt.models.gpt2.model import GPT2
from npgpt.models.llama.model import Llama
from npgpt.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward
from npgpt.ops.lookup import check_ids
from npgpt.trace.lens import view_of

MOST_TOKENS = 512  # of the texts in a batch, for the memory that their logits take


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
    return text.effects(edits)


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
    edits: list[tuple[str, int | None, np.ndarray]] = []
    for station in stations:
        if station not in text.arrays:
            raise ValueError(
                f"there is no station {station!r}; there are: {', '.join(text.arrays)}"
            )
        new = text.arrays[station].copy()
        rows = slice(None) if positions is None else list(positions)
        new[..., rows, :] = source.arrays[station][..., rows, :]
        edits.append((station, None, new))
    return text.effects(edits)


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

    def effects(self, edits: Sequence[tuple[str, int | None, np.ndarray]]) -> list[Effect]:
        """Of each new array, by itself, in the place of its station's."""
        found = []
        for station, group in groupby(edits, key=lambda edit: edit[0]):
            same = list(group)
            size = max(1, MOST_TOKENS // len(self.ids))
            for start in range(0, len(same), size):
                found += self._at_once(station, same[start : start + size])
        return found

    def _at_once(
        self, station: str, edits: Sequence[tuple[str, int | None, np.ndarray]]
    ) -> list[Effect]:
        """Edits of one station side by side, one in each text of a batch."""
        new = np.stack([array for _, _, array in edits])  # [B, …]
        logits = self.model.forward(
            np.tile(self.ids, (len(edits), 1)),
            observe=lambda name, _: new if name == station else None,
        ).logits
        found = []
        for (_, head, array), row in zip(edits, logits, strict=True):
            loss, _ = cross_entropy_forward(row[:-1], self.ids[1:])
            old = self.arrays[station]
            moved = np.subtract(array, old, out=np.zeros_like(old), where=array != old)  # not -∞+∞
            estimate = float((self.gradients[station] * moved).sum())
            found.append(Effect(station, head, float(loss - self.loss), estimate))
        return found


def _check(what: str, number: int, count: int) -> None:
    if not 0 <= number < count:
        raise ValueError(f"there is no {what} {number}; there are {count}, counted from 0.")
