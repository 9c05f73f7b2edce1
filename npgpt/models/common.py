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
from npgpt.layers.stations import Station, unobserved
from npgpt.models.generation import Generation, with_generation

Params = dict[str, np.ndarray]
Observer = Callable[[str, np.ndarray], Any]  # an array that it returns takes the place


class Pass(NamedTuple):
    """What a pass carries along, from the model down to each sublayer."""

    rng: np.random.Generator | None = None  # draws the dropout masks in training; None: no dropout
    observe: Observer | None = None  # called as observe(station, array)
    flash: bool = False  # attention without weight tables
    keep: bool = True  # what a backward pass reads
    kv: KVCache | None = None  # keys and values of earlier tokens

    def station(self, name: str, array: np.ndarray) -> np.ndarray:
        """Show an array to whoever observes the pass; returns what the pass goes on with.

        Raises ValueError for an array of another shape in its place.
        """
        if self.observe is None or (other := self.observe(name, array)) is None:
            return array
        other = np.asarray(other, array.dtype)
        if other.shape != array.shape:
            raise ValueError(
                f"{name} is {[*array.shape]}, but observe returned {[*other.shape]} for it; return "
                "None to leave it as it is."
            )
        return other

    def within(self, part: str, **names: str) -> Station:
        """The stations of a part: `station` with its name in front, and other `names` behind."""
        if self.observe is None:
            return unobserved
        return lambda name, array: self.station(f"{part}.{names.get(name, name)}", array)

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


def put(grads: Params, *names: str, of: Iterable[Any]) -> None:
    """Put the gradients of parts under their names, in the order in which `of` lists parameters.

    Either every part named has a bias or none has.
    """
    arrays = list(of)
    kinds = ("weight", "bias")[: len(arrays) // len(names)]
    keys = [f"{name}.{kind}" for name in names for kind in kinds]
    grads |= zip(keys, arrays, strict=True)


def those_of(params: Params, part: str, names: Iterable[str]) -> list[Any]:
    """The parameters of a part by their names in it; None for those that this model has not."""
    return [params.get(f"{part}.{name}") for name in names]


def put_those_of(
    grads: Params, part: str, names: Iterable[str], of: Iterable[np.ndarray | None]
) -> None:
    """Put the gradients of a part's parameters under their names, as far as they are there."""
    both = zip(names, of, strict=True)
    grads |= {f"{part}.{name}": grad for name, grad in both if grad is not None}


class Model:
    """A configuration and its parameters.

    Attributes:
        config: sizes and options.
        params: name -> array, under the names of the Hugging Face checkpoint without its prefix.
        source: the place it was loaded from, None for a model made in memory.
    """

    source: Path | None = None
    _generation: Generation | None = None

    def __init__(self, config: Any, params: Params) -> None:
        self.config = config
        self.params = params

    @property
    def generation(self) -> Generation:
        """How it writes unless told otherwise; what the configuration says until it is set."""
        if self._generation is not None:
            return self._generation
        where = "the configuration"
        return Generation.from_dict(self.config.to_dict(), where, self.written_ids)

    @generation.setter
    def generation(self, settings: Generation) -> None:
        self._generation = settings

    @property
    def written_ids(self) -> int:
        """How many ids it may write."""
        size: int = self.config.vocab_size
        return size

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
        beside = companions(self.source)
        if self._generation is not None:
            beside = with_generation(beside, self._generation)
        self._save(folder, beside=beside, overwrite=overwrite)

    def _save(self, folder: str | os.PathLike[str], **options: Any) -> None:
        """What the architecture's checkpoint.py does; options of `write_checkpoint`."""
        raise NotImplementedError
