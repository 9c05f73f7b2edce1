"""What a hypothesis is, and what hypotheses are about: a model, its steps, a text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from npgpt.compare.activations import GRAD, Edit, Stations
from npgpt.compare.steps import Steps


class Hypothesis(NamedTuple):
    """One fault."""

    says: str
    touches: Collection[str]  # stations, loss and gradients whose own step it changes
    model: Any
    targets: np.ndarray | None = None
    edit: Edit | None = None


class Subject(NamedTuple):
    """What the hypotheses are about."""

    model: Any
    steps: Steps
    ids: np.ndarray
    targets: np.ndarray
    theirs: Mapping[str, np.ndarray]

    def edited(self, says: str, names: Iterable[str], edit: Edit) -> Hypothesis:
        """A hypothesis that changes these arrays."""
        touches = {*names}

        def only_there(name: str, array: np.ndarray, went: Stations) -> np.ndarray:
            return edit(name, array, went) if name in touches else array

        return Hypothesis(says, touches, self.model, edit=only_there)

    def configured(self, says: str, names: Iterable[str], **options: Any) -> Hypothesis:
        """A hypothesis that changes the configuration."""
        model = type(self.model)(replace(self.model.config, **options), self.model.params)
        return Hypothesis(says, self.both_ways(names), model)

    def changed(self, says: str, params: dict[str, np.ndarray]) -> Hypothesis:
        """A hypothesis that changes these parameters."""
        modules = {*params, *(name.rpartition(".")[0] for name in params)}
        names = [name for name, step in self.steps.items() if modules & {*step.modules}]
        model = type(self.model)(self.model.config, self.model.params | params)
        return Hypothesis(says, self.both_ways(names), model)

    def both_ways(self, names: Iterable[str]) -> set[str]:
        """The stations, and the gradients that come back through their steps."""
        names = {*names}
        steps = [self.steps[name] for name in names]
        backward = {read for step in steps for read in step.reads}
        backward |= {
            f"{module}.{kind}" for s in steps for module in s.modules for kind in ("weight", "bias")
        }
        return names | {GRAD + name for name in backward}

    def ending(self, *ends: str) -> list[str]:
        """The stations whose names end like this."""
        return [name for name in self.steps if name.endswith(ends)]

    def option(self, keys: Iterable[str]) -> str | None:
        """That of the keys which this configuration has."""
        return next((key for key in keys if hasattr(self.model.config, key)), None)


def raw_scores(went: Stations, attention: str) -> np.ndarray:
    """q·k of all pairs; keys may be shared by several heads."""
    q, k = went[f"{attention}.q"], went[f"{attention}.k"]
    raw: np.ndarray = q @ np.repeat(k, len(q) // len(k), axis=0).swapaxes(-1, -2)
    return raw
