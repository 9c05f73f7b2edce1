"""AdamW, clipping by the global norm, and the schedule of the learning rate, written out.

State lives in plain dicts keyed like the parameters. Everything happens in place and in pieces that
stay in the processor's cache, so that no step allocates anything of the size of the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from npgpt.decoding.arguments import real_number, whole_number
from npgpt.models.common import Params
from npgpt.ops import threads
from npgpt.ops.chunks import SIZE, chunks

BELOW_1 = math.nextafter(1, 0)


class AdamWState(NamedTuple):
    """Both moments of every gradient, keyed, shaped and typed like the parameters."""

    first: Params
    second: Params


def new_adamw_state(params: Mapping[str, np.ndarray]) -> AdamWState:
    """The state before the first step: all zeros."""
    zeros = [{name: np.zeros_like(param) for name, param in params.items()} for _ in range(2)]
    return AdamWState(*zeros)


def decays(param: np.ndarray) -> bool:
    """Whether weight decay applies: to matrices, never to biases and LayerNorm gains.

    The two embedding tables are matrices and decay too: a tied `wte` is the lm_head, whose logits
    decay keeps in bounds, and rows that the text never uses would otherwise stay as drawn.
    """
    return param.ndim >= 2


def adamw_step(
    params: Params,
    grads: Mapping[str, np.ndarray],
    state: AdamWState,
    *,
    step: int,
    lr: float,
    weight_decay: float = 0.1,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-8,
) -> None:
    """One update of every parameter and both moments, in place (Loshchilov & Hutter 2019).

        m = β1 m + (1 - β1) g               v = β2 v + (1 - β2) g²
        p = p (1 - lr λ) - lr  m / (1 - β1^t) / (√(v / (1 - β2^t)) + ε)

    The decay λ is decoupled: it shrinks p itself and does not pass through the moments. Dividing by
    1 - β^t undoes the moments' pull towards their start at 0.

    Args:
        params, grads: same names and shapes; params must lie in C order.
        step: t, counted from 1.
        lr: learning rate of this step.
        weight_decay: λ, of the parameters of which `decays` is true.

    Raises:
        ValueError: a step below 1, a rate below 0, a β outside [0, 1); gradients of another shape;
            a parameter does not lie in C order, so that it has no flat view to update.
    """
    step, lr = whole_number("step", step, 1), real_number("lr", lr, 0)
    weight_decay, eps = real_number("weight_decay", weight_decay, 0), real_number("eps", eps, 0)
    beta1, beta2 = real_number("beta1", beta1, 0, BELOW_1), real_number("beta2", beta2, 0, BELOW_1)
    correction1, correction2 = 1 - beta1**step, math.sqrt(1 - beta2**step)

    def update(name: str) -> None:
        param = params[name]
        shrink = 1 - lr * weight_decay if decays(param) else 1.0
        a, b = np.empty((2, min(SIZE, param.size)), param.dtype)
        arrays = (param, grads[name], state.first[name], state.second[name])
        for p, g, m, v in chunks(*(array.reshape(-1) for array in arrays)):
            if len(p) < len(a):
                a, b = a[: len(p)], b[: len(p)]
            m *= beta1
            m += np.multiply(g, 1 - beta1, out=a)
            v *= beta2
            v += np.multiply(np.multiply(g, g, out=a), 1 - beta2, out=a)
            np.sqrt(v, out=a)
            a /= correction2
            a += eps
            np.divide(m, a, out=b)
            b *= lr / correction1
            p *= shrink
            p -= b

    for name in params:
        arrays = (params[name], state.first[name], state.second[name])
        if grads[name].shape != params[name].shape:
            raise ValueError(
                f"the gradient of {name!r} has shape {[*grads[name].shape]}, the parameter "
                f"{[*params[name].shape]}."
            )
        if not all(array.flags.c_contiguous for array in arrays):
            raise ValueError(f"{name!r} does not lie in C order; train on a copy that does.")
    # The largest first, so that no thread is left alone with one at the end.
    threads.parallel(update, sorted(params, key=lambda name: -params[name].size))


def clip_gradients(grads: Mapping[str, np.ndarray], max_norm: float) -> float:
    """Scale all gradients together, in place, so that their global norm is at most `max_norm`.

        norm = √ Σ g², over all numbers of all gradients;    g *= min(1, max_norm / (norm + 1e-6))

    Args:
        max_norm: the bound; 0 only measures.

    Returns:
        The norm before clipping; NaN or infinite if a gradient is, which then stay as they are.
    """
    max_norm = real_number("max_norm", max_norm, 0)
    squares = [float(np.dot(flat, flat)) for flat in (g.reshape(-1) for g in grads.values())]
    norm = math.sqrt(math.fsum(squares)) if all(map(math.isfinite, squares)) else math.nan
    scale = max_norm / (norm + 1e-6)
    if max_norm > 0 and scale < 1:
        for grad in grads.values():
            grad *= scale
    return norm


def learning_rate(step: int, *, peak: float, floor: float, warmup: int, steps: int) -> float:
    """The learning rate of step 0, 1, …: up to `peak` in a line, then down to `floor` in a cosine.

    Args:
        warmup: steps of the rise; step `warmup` is the first at the peak.
        steps: length of the whole schedule; from step `steps` on the rate is the floor.
    """
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    done = min(1.0, (step - warmup) / max(1, steps - warmup))
    return floor + (peak - floor) * (1 + math.cos(math.pi * done)) / 2


def inverse_sqrt_learning_rate(step: int, *, d_model: int, warmup: int) -> float:
    """The learning rate of step 1, 2, … in the paper of 2017 (section 5.3).

        lr = d^-½ min(step^-½, step warmup^-3/2)

    It rises in a line to (d warmup)^-½ at step `warmup`, then falls with the root of the step: the
    wider the model, the smaller the steps, and the schedule has no end.
    """
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
