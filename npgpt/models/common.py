"""What all models share: parameters by name, how a pass is run, and what every model can do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npgpt.decoding.arguments import flag
from npgpt.decoding.kv_cache import KVCache
from npgpt.files.hub import companions
from npgpt.files.io import path_text

Params = dict[str, np.ndarray]
Observer = Callable[[str, np.ndarray], Any]


class Pass(NamedTuple):
    """What a pass carries along, from the model down to each sublayer."""

    rng: np.random.Generator | None = None  # draws the dropout masks in training; None: no dropout
    observe: Observer | None = None  # called as observe(station, array)
    flash: bool = False  # attention without weight tables
    keep: bool = True  # what a backward pass reads
    kv: KVCache | None = None  # keys and values of earlier tokens

    def station(self, name: str, array: np.ndarray) -> None:
        """Show an intermediate result to whoever observes the pass."""
        if self.observe is not None:
            self.observe(name, array)

    def weights(self, name: str, attn: Any) -> None:
        """Show the attention weights [..., H, T, S], which a pass with `flash` does not have."""
        if self.observe is not None and not self.flash:
            self.observe(f"{name}.probs", attn.probs)

    def extend_kv(self, n: int) -> Callable[..., tuple[np.ndarray, np.ndarray]] | None:
        """What puts new keys and values of block n behind the earlier ones; None without cache."""
        return None if self.kv is None else partial(self.kv.extend, n)


def of(params: Params, *names: str) -> list[np.ndarray]:
    """Weight and bias of each part, one behind the other; of a part without bias the weight."""
    return [
        params[f"{name}.{kind}"]
        for name in names
        for kind in ("weight", "bias")
        if kind == "weight" or f"{name}.bias" in params
    ]


def put(grads: Params, *names: str, of: Iterable[np.ndarray]) -> None:
    """Put the gradients of parts under their names, in the order in which `of` lists parameters.

    Either every part named has a bias or none has.
    """
    arrays = list(of)
    kinds = ("weight", "bias")[: len(arrays) // len(names)]
    keys = [f"{name}.{kind}" for name in names for kind in kinds]
    grads |= zip(keys, arrays, strict=True)


class Model:
    """A configuration and its parameters.

    Attributes:
        config: sizes and options.
        params: name -> array, under the names of the Hugging Face checkpoint without its prefix.
        source: the place it was loaded from, None for a model made in memory.
    """

    source: Path | None = None

    def __init__(self, config: Any, params: Params) -> None:
        self.config = config
        self.params = params

    def __repr__(self) -> str:
        dtypes = sorted({array.dtype.name for array in self.params.values()})
        return (
            f"{type(self).__name__}({self._sizes()}, {self.num_params():,} parameters, "
            f"{', '.join(dtypes)})"
        )

    def _sizes(self) -> str:
        """The sizes that `repr` shows."""
        raise NotImplementedError

    def num_params(self) -> int:
        """Number of parameters, a tied table counted once."""
        return sum(array.size for array in self.params.values())

    def save_pretrained(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a folder that transformers loads too, with the vocabulary of the model loaded.

        `overwrite`: also where there is another vocabulary or a training run; else ValueError.
        """
        folder, overwrite = path_text("folder", folder), flag("overwrite", overwrite)
        self._save(folder, beside=companions(self.source), overwrite=overwrite)

    def _save(self, folder: str | os.PathLike[str], **options: Any) -> None:
        """What the architecture's checkpoint.py does; options of `write_checkpoint`."""
        raise NotImplementedError
