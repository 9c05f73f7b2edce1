"""AdamW: one step of a matrix, which decays, and of a vector; some steps of a whole model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from npgpt.models.common import Params
from npgpt.train.optim import Moments, adamw_step, new_adamw_state
from npgpt.vectors.cases import Arrays, Case, Computed, Float, formulas, generator, made

# eps is large for AdamW: a gradient that is all rounding, such as a key's bias, moves nothing then.
SETTINGS = {"lr": 0.01, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-3}
STEPS = 2  # of a model

# case -> shape, number of the step
CASES = {
    "first_step": ((3, 5), 1),
    "matrix": ((3, 5), 7),
    "vector_does_not_decay": ((5,), 7),
}


def optimizer_cases() -> Iterator[Case]:
    """The cases of `CASES`."""
    for case, (shape, step) in CASES.items():
        name = f"optimizer/adamw.{case}"
        yield Case(name, formulas(adamw_step), "", partial(_one_step, name, shape, step))


def _one_step(name: str, shape: tuple[int, ...], step: int, dtype: Float) -> Computed:
    """From moments of earlier steps, or none, to those after this one."""
    rng = generator(name)
    p, g, m, v = (made(shape, rng, dtype) for _ in "pgmv")
    inputs = {"p": p, "g": g, "m": 0 * m if step == 1 else m, "v": 0 * v if step == 1 else abs(v)}
    new = {key: {"": array.copy()} for key, array in inputs.items()}
    adamw_step(new["p"], new["g"], Moments(new["m"], new["v"]), step=step, **SETTINGS)
    outputs = {f"new_{key}": new[key][""] for key in "pmv"}
    return Computed(inputs, SETTINGS | {"step": step}, outputs, {}, {})


def trained(params: Mapping[str, np.ndarray], grads_at: Callable[[Params], Params]) -> Arrays:
    """The parameters after `STEPS` steps from moments of zero."""
    moving = {name: param.copy() for name, param in params.items()}
    state = new_adamw_state(moving)
    for step in range(1, STEPS + 1):
        adamw_step(moving, grads_at(moving), state, step=step, **SETTINGS)
    return moving
