"""AdamW, Muon, clipping by the global norm, and the schedule of the learning rate, written out.

State lives in plain dicts keyed like the parameters. Everything happens in place and in pieces, of
a size that stays in the processor's cache, or of one matrix, so that no step allocates anything of
the size of the model.
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
OPTIMIZERS = ("adamw", "muon")
QUINTIC = (3.4445, -4.7750, 2.0315)  # of Newton and Schulz's iteration, as Jordan et al. tuned it
ITERATIONS = 5
RMS = 0.2  # of an update that is orthogonalised, in learning rates: about what AdamW's is


class Moments(NamedTuple):
    """Means of the gradients and of their squares, keyed, shaped and typed like the parameters.

    `second` lacks the matrices that Muon updates.
    """

    first: Params
    second: Params


def new_adamw_state(params: Mapping[str, np.ndarray]) -> Moments:
    """The state before the first step of AdamW: all zeros."""
    return Moments(_zeros(params), _zeros(params))


def new_muon_state(params: Mapping[str, np.ndarray]) -> Moments:
    """The state before the first step of Muon: all zeros."""
    rest = {name: param for name, param in params.items() if not is_hidden(name, param.shape)}
    return Moments(_zeros(params), _zeros(rest))


def _zeros(params: Mapping[str, np.ndarray]) -> Params:
    return {name: np.zeros_like(param) for name, param in params.items()}


def decays(param: np.ndarray) -> bool:
    """Whether weight decay applies: to matrices, never to biases and LayerNorm gains.

    The two embedding tables are matrices and decay too: a tied `wte` is the lm_head, whose logits
    decay keeps in bounds, and rows that the text never uses would otherwise stay as drawn.
    """
    return param.ndim >= 2


def adamw_step(
    params: Params,
    grads: Mapping[str, np.ndarray],
    state: Moments,
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
        _check_shape(name, params, grads)
        arrays = (params[name], state.first[name], state.second[name])
        if not all(array.flags.c_contiguous for array in arrays):
            raise ValueError(f"{name!r} does not lie in C order; train on a copy that does.")
    threads.parallel(update, _largest_first(params))


def is_hidden(name: str, shape: tuple[int, ...]) -> bool:
    """Whether Muon updates this parameter: the matrices of the blocks, whose names have a number.

    The tables of tokens and positions and the lm_head are not among them: each of their rows stands
    for one token and has a gradient of its own, however rare the token is (Jordan et al. 2024).
    """
    return len(shape) == 2 and any(part.isdecimal() for part in name.split("."))


def muon_step(
    params: Params,
    grads: Mapping[str, np.ndarray],
    state: Moments,
    *,
    step: int,
    lr: float,
    weight_decay: float = 0.1,
    momentum: float = 0.95,
    beta1: float = 0.9,
    beta2: float = 0.99,
) -> None:
    """One update in place: `orthogonalized` momentum for hidden matrices, AdamW for all others.

        m = μ m + (1 - μ) g
        u = μ m + (1 - μ) g                                    Nesterov: g counts once more
        W = W (1 - lr λ) - lr 0.2 √max(r, c) orthogonalized(u)        W, g, m, u: [r, c]

    A gradient moves a matrix mostly along the few directions that it has most of. Orthogonalised it
    moves along all of them alike, so that those that are rare and small are learned, too. Jordan et
    al. 2024, "Muon: An optimizer for hidden layers in neural networks".

    An orthogonalised matrix has a root mean square of about 1 / √max(r, c). Scaled to 0.2, which is
    about that of AdamW's updates, it takes AdamW's learning rate and decay (Liu et al. 2025, "Muon
    is scalable for LLM training").

    GPT-2's `c_attn` [d, 3 d] is three matrices side by side, for queries, keys and values, and each
    is orthogonalised by itself: three maps that have nothing in common but their input.

    Args:
        params, grads: same names and shapes; what `is_hidden` is true of is a hidden matrix.
        state: of `new_muon_state`; its `first` is also m.
        step, beta1, beta2: AdamW's, as in `adamw_step`.
        lr, weight_decay: of both; λ applies to all hidden matrices.
        momentum: μ.

    Raises:
        ValueError: as in `adamw_step`; a μ outside [0, 1).
    """
    momentum, lr = real_number("momentum", momentum, 0, BELOW_1), real_number("lr", lr, 0)
    hidden = {name: param for name, param in params.items() if is_hidden(name, param.shape)}
    for name in hidden:
        _check_shape(name, params, grads)
    rest = {name: param for name, param in params.items() if name not in hidden}
    adamw_step(
        rest, grads, state, step=step, lr=lr, weight_decay=weight_decay, beta1=beta1, beta2=beta2
    )

    def update(name: str) -> None:
        param, mean = hidden[name], state.first[name]
        new = (1 - momentum) * grads[name]
        mean *= momentum
        mean += new
        new += momentum * mean
        param *= 1 - lr * weight_decay
        count = 3 if name.endswith("c_attn.weight") else 1
        pieces = (np.split(array, count, axis=1) for array in (param, new))
        for p, u in zip(*pieces, strict=True):
            p -= lr * RMS * math.sqrt(max(p.shape)) * orthogonalized(u)

    threads.parallel_blas(update, _largest_first(hidden))


def orthogonalized(matrix: np.ndarray) -> np.ndarray:
    """The matrix with all its singular values near 1, by the iteration of Newton and Schulz.

        M = U Σ Vᵀ  ->  U f(Σ) Vᵀ,  f(σ) in [0.68, 1.21] for σ above 0.0015 ‖M‖

        X = M / ‖M‖                         ‖M‖: root of the sum of squares, so that no σ is above 1
        five times:  A = X Xᵀ,  P = a I + b A + c A²,  X = P X     a, b, c = 3.4445, -4.7750, 2.0315

    X keeps U and V, and each σ becomes a σ + b σ³ + c σ⁵. An exact UVᵀ would need other numbers and
    more iterations: these make small σ large as fast as possible, and do not settle at 1.

    A matrix that is tall is transposed before and after, so that A is the smaller of X Xᵀ and XᵀX.
    If it is at least twice as long as wide, all P are multiplied first, and X once: as each P is a
    polynomial of the first A, the next A is A P². NumPy takes half the time for a product A Aᵀ, so
    symmetric matrices are squared so.

    Args:
        matrix: M [r, c], in any order. What is zero stays zero.

    Returns:
        A new array [r, c] of the matrix's dtype, in which everything is computed: NumPy knows no
        bfloat16, in which this is usually done, and float64 is chosen where rounding must not show.
    """
    x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = x / max(float(np.linalg.norm(x)), 1e-7)
    wide = 2 * len(x) <= x.shape[1]
    (a, b, c), gram = QUINTIC, x @ x.T
    y = np.eye(len(x), dtype=x.dtype) if wide else x
    for left in reversed(range(ITERATIONS)):
        poly = gram @ gram.T
        poly *= c
        poly += b * gram
        poly.flat[:: len(x) + 1] += a  # the diagonal
        y = poly @ y
        if left:
            gram = gram @ (poly @ poly.T) if wide else y @ y.T
    if wide:
        y = y @ x
    return y if y.shape == matrix.shape else y.T


def _check_shape(name: str, params: Params, grads: Mapping[str, np.ndarray]) -> None:
    if grads[name].shape != params[name].shape:
        raise ValueError(
            f"the gradient of {name!r} has shape {[*grads[name].shape]}, the parameter "
            f"{[*params[name].shape]}."
        )


def _largest_first(params: Params) -> list[str]:
    """An order in which no thread is left alone with a large one at the end."""
    return sorted(params, key=lambda name: -params[name].size)


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
