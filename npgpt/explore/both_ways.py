"""One pass there and back, with what every station was and which gradient arrived there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npgpt.models.causal import check_positions
from npgpt.models.common import Params
from npgpt.models.gpt2.model import GPT2
from npgpt.models.gpt_neo.model import GPTNeo
from npgpt.models.llama.model import Llama
from npgpt.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward
from npgpt.trace import lens


class BothWays(NamedTuple):
    """A text that a model has read, and the way back from the mean loss of its next tokens."""

    model: GPT2 | Llama
    seen: lens.Observed
    back: dict[str, np.ndarray]  # station -> gradient of the mean loss
    grads: Params  # parameter -> the same
    loss: float
    losses: np.ndarray  # [T - 1], of each position that has a next token

    @property
    def view(self) -> lens.LensView:
        """What GPT-2 and Llama have under other names."""
        return self.seen.view

    def in_heads(self, station: str) -> np.ndarray:
        """A station [T, H d_h], the heads side by side, as [T, H, d_h]."""
        array = self.seen.stations[station]
        return array.reshape(len(array), self.view.n_head, -1)

    def attn(self, n: int) -> str:
        """The station of what block n's attention adds."""
        return f"{self.view.block_station(n)}.{self.view.attn}"

    def mlp(self, n: int) -> str:
        """The station of what block n's feed-forward network adds."""
        return f"{self.view.block_station(n)}.mlp"

    def W_O(self, n: int) -> str:
        """The name of the matrix that puts the heads of block n together, without `.weight`."""
        return f"{self.attn(n)}.{self.out}"

    @property
    def out(self) -> str:
        """That name within the attention."""
        if isinstance(self.model, GPTNeo):
            return "attention.out_proj"
        return "o_proj" if isinstance(self.model, Llama) else "c_proj"


def there_and_back(model: GPT2 | Llama, ids: list[int]) -> BothWays:
    """Run both passes; ValueError for fewer than two tokens and for what `forward` refuses."""
    if len(ids) < 2:
        raise ValueError("a page needs at least two tokens: the loss is that of a next one.")
    check_positions(np.arange(len(ids)), model.context)  # beyond it a Llama turns on, untrained
    seen = lens.observe(model, ids)
    logits, targets = seen.stations["logits"], np.array(ids[1:])
    loss, saved = cross_entropy_forward(logits[:-1], targets)
    if not np.isfinite(loss):
        raise ValueError(f"the mean loss of this text is {loss}: there is no page to make of it.")
    dlogits = np.zeros_like(logits)
    dlogits[:-1] = cross_entropy_backward(1.0, saved)
    back: dict[str, np.ndarray] = {}
    grads = model.backward(dlogits, seen.saved, observe=back.__setitem__)
    losses = [
        float(cross_entropy_forward(row, target)[0])
        for row, target in zip(logits[:-1, None], targets[:, None], strict=True)
    ]
    return BothWays(model, seen, back, grads, float(loss), np.array(losses, logits.dtype))
