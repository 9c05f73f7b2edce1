"""Dumps of ports that do one thing wrong, or two or three at once, forward or backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from npgpt.compare.activations import (
    GRAD,
    INPUTS,
    Stations,
    collect_stations,
    inputs_and_targets,
    seen,
)
from npgpt.compare.comparing import Comparison, Question, compare
from npgpt.compare.differences import OK
from npgpt.compare.dump import Dump
from npgpt.ops.cross_entropy import cross_entropy_backward, cross_entropy_forward
from tests.builders.bert import random_bert
from tests.builders.gpt2 import random_gpt2
from tests.builders.llama import random_llama
from tests.builders.transformer import random_transformer

MODELS: dict[str, Callable[..., Any]] = {
    "gpt2": random_gpt2,
    "llama": random_llama,
    "mixtral": partial(random_llama, model_type="mixtral", num_local_experts=5),
    "bert": random_bert,
    "bart": lambda rng, dtype: random_transformer(rng, dtype, model_type="bart"),
}
IDS, TARGET_IDS = np.array([3, 1, 4, 1, 5, 2]), np.array([4, 6, 3, 2])

Fault = Callable[[np.ndarray], np.ndarray]


def scaled(x: np.ndarray) -> np.ndarray:
    """A factor forgotten or put in twice."""
    return x * x.dtype.type(1.02)


def shifted(x: np.ndarray) -> np.ndarray:
    """A bias where there is none, or another one."""
    ramp = np.linspace(0, 0.1, x.shape[-1] if x.ndim else 1, dtype=x.dtype)
    return x + ramp.reshape(x.shape[-1:]) + x.dtype.type(0.01)


def reordered(x: np.ndarray) -> np.ndarray:
    """Heads or columns the other way round."""
    return x[::-1].copy() if x.ndim == 3 else x[..., ::-1].copy()


def cut_off(x: np.ndarray) -> np.ndarray:
    """The last of each row left out."""
    x = x.copy()
    x[..., -1:] = 0
    return x


def late(x: np.ndarray) -> np.ndarray:
    """Every position has what belongs to the one before it."""
    return np.roll(x, 1, axis=-2) if x.ndim > 1 else x


FAULTS: tuple[Fault, ...] = (scaled, shifted, reordered, cut_off, late)
KEEPING_THE_MASK: tuple[Fault, ...] = (scaled, shifted)


@cache
def model_and_stations(architecture: str, dtype: str) -> tuple[Any, Stations]:
    """A small model, and what it computes."""
    rng = np.random.default_rng(5)
    model = MODELS[architecture](rng, np.dtype(dtype).type)
    return model, collect_stations(model, *ids_of(architecture), gradients=True)


def ids_of(architecture: str) -> tuple[np.ndarray, np.ndarray | None]:
    return IDS, TARGET_IDS if architecture == "bart" else None


def places(architecture: str, dtype: str) -> list[str]:
    """Where there can be a fault: stations, loss and gradients that are not 0."""
    _, own = model_and_stations(architecture, dtype)
    return [
        name
        for name, array in own.items()
        if name not in INPUTS and not name.endswith(("k_proj.bias", "key.bias")) and array.any()
    ]


def draw(architecture: str, dtype: str, count: int, rng: np.random.Generator) -> dict[str, Fault]:
    """Faults at so many places, each large enough to be seen."""
    _, own = model_and_stations(architecture, dtype)
    found: dict[str, Fault] = {}
    while len(found) < count:
        name = str(rng.choice(places(architecture, dtype)))
        fault = pick(name, own, rng)
        if fault is not None:
            found[name] = fault
    return found


def pick(name: str, own: Stations, rng: np.random.Generator) -> Fault | None:
    """A fault that changes this array; None where the one that came up does not."""
    kinds = KEEPING_THE_MASK if name.endswith("scores") or name == "loss" else FAULTS
    fault = kinds[rng.integers(len(kinds))]
    right = seen(name, own[name], own)
    wrong = seen(name, fault(own[name]), own)
    visible = np.linalg.norm(wrong - right) > 1e-3 * np.linalg.norm(right)
    return fault if visible else None


def port(architecture: str, dtype: str, faults: Mapping[str, Fault]) -> Stations:
    """What a program with these faults computes, all behind them from what is wrong."""
    model, _ = model_and_stations(architecture, dtype)
    inputs, targets = inputs_and_targets(model, *ids_of(architecture))
    dumped: Stations = {}

    def keep(name: str, array: np.ndarray) -> np.ndarray:
        dumped[name] = faults[name](array) if name in faults else array
        return dumped[name]

    out = model.forward(*inputs, observe=keep)
    loss, saved_loss = cross_entropy_forward(out.logits, targets)
    keep("loss", np.asarray(loss))
    dlogits = cross_entropy_backward(1.0, saved_loss)
    grads = model.backward(dlogits, out.saved, observe=lambda name, dx: keep(GRAD + name, dx))
    for name, grad in grads.items():
        keep(GRAD + name, grad)
    return dumped


def compared(
    architecture: str,
    dtype: str,
    dumped: Stations,
    *,
    local: bool,
    maps: bool = False,
    stored: str = "",
) -> Comparison:
    """What the command finds in a dump, which was `stored` in another precision than it is in."""
    model, _ = model_and_stations(architecture, dtype)
    how = dtype, None, *ids_of(architecture), True, local, maps
    dump = Dump(dumped, {name: stored or array.dtype.name for name, array in dumped.items()})
    return compare(model, dump, Question("a model", architecture, "a port", *how))


def wrong_in(comparison: Comparison) -> set[str]:
    return {row.station for row in comparison.rows if row.verdict != OK}
