"""What all models share: their parameters by name, and how a pass is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Params = dict[str, np.ndarray]
Observer = Callable[[str, np.ndarray], Any]


class Pass(NamedTuple):
    """How a pass is run; see `Transformer.forward`. `keep`: for a backward pass."""

    rng: np.random.Generator | None = None
    observe: Observer | None = None
    flash: bool = False
    keep: bool = True


def of(params: Params, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias."""
    return params[f"{name}.weight"], params[f"{name}.bias"]


def put(grads: Params, name: str, dweight: np.ndarray, dbias: np.ndarray) -> None:
    """Gradients of weight and bias."""
    grads[f"{name}.weight"], grads[f"{name}.bias"] = dweight, dbias


def station(observe: Observer | None, name: str, array: np.ndarray) -> None:
    """Show an intermediate result to whoever asked to observe the pass."""
    if observe is not None:
        observe(name, array)
