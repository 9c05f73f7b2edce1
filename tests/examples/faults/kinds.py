"""Faults that can be planted in npgpt, or in a line of an example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Wrong = Callable[[Any], Any]  # from what is right to what is wrong


class Fault(NamedTuple):
    """One fault: `target` is a dotted name; `args` go to the example."""

    target: str
    wrong: Wrong
    breaks: str  # words of the claim, check or gradient that does not hold then
    args: tuple[str, ...] = ()


class Rewritten(NamedTuple):
    """A line of the example itself that says something else, for what npgpt has no part in."""

    right: str
    wrong: str
    breaks: str
    args: tuple[str, ...] = ()


Faults = dict[str, list[Fault | Rewritten]]  # by example
OPS, LAYERS, GPT2 = "npgpt.ops.", "npgpt.layers.", "npgpt.models.gpt2."
RANDOM = ("--model", "random")  # not the model that ships


def result(change: Callable[[Any], Any], place: int = 0) -> Wrong:
    """A function whose result is changed; of several, the one at `place`."""

    def wrong(right: Any) -> Any:
        def faulty(*args: Any, **settings: Any) -> Any:
            got = right(*args, **settings)
            if not isinstance(got, tuple):
                return change(got)
            return tuple(change(each) if n == place else each for n, each in enumerate(got))

        return faulty

    return wrong


def given(change: Callable[..., Any]) -> Wrong:
    """A function whose arguments without a name are changed."""
    return lambda right: lambda *args, **settings: right(*change(*args), **settings)


def instead(function: Any) -> Wrong:
    """Something else altogether."""
    return lambda right: function


def setting(**fields: Any) -> Wrong:
    """A configuration with other defaults."""

    def wrong(right: Any) -> Any:
        def init(self: Any, **given: Any) -> None:
            right.__init__(self, **{**fields, **given})

        return type(right.__name__, (right,), {"__init__": init})

    return wrong


def a_little_off(array: Any) -> Any:
    """0.1 % too large."""
    return 1.001 * array


def uneven(x: np.ndarray) -> np.ndarray:
    """Later columns are too large, by up to 1 %."""
    return x * np.linspace(1, 1.01, x.shape[-1]).astype(x.dtype)


def with_parameter(name: str, shape: tuple[int, ...]) -> Wrong:
    """Shapes with one that the model has not, or has otherwise."""
    return result(lambda shapes: {**shapes, name: shape})
