"""Every operation with inputs of distinct sizes, for the tests that all operations share.

An operation that is missing here fails `test_every_operation_is_listed`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from npgpt import ops
from npgpt.ops import (
    activation,
    cross_entropy,
    dropout,
    flash_attention,
    heads,
    label_smoothing,
    layer_norm,
    linear,
    lm_head,
    lm_head_loss,
    load_balance,
    lookup,
    mask,
    position,
    project,
    rms_norm,
    rope,
    router,
    scores,
    shared_heads,
    softmax,
    weighted_sum,
)

T, S, V, D, H, D_H, F, N_POSITIONS = 5, 7, 11, 12, 3, 4, 10, 9

Inputs = tuple[np.ndarray, ...]


def no_params(rng: np.random.Generator) -> Inputs:
    """For operations whose inputs all have leading axes."""
    return ()


class Case(NamedTuple):
    """One way to call an operation.

    `data` makes the inputs that have leading axes, from a generator and these axes; `params` those
    that all leading axes share. `settings` makes the keyword arguments, afresh for every call.
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    data: Callable[[np.random.Generator, tuple[int, ...]], Inputs]
    params: Callable[[np.random.Generator], Inputs] = no_params
    settings: Callable[[], dict[str, Any]] = dict

    def inputs(
        self, rng: np.random.Generator, lead: tuple[int, ...], dtype: type[np.floating] = np.float64
    ) -> tuple[Inputs, Inputs]:
        """Data and parameters; what is floating comes in `dtype`."""
        return cast(self.data(rng, lead), dtype), cast(self.params(rng), dtype)

    def run(self, *inputs: np.ndarray) -> tuple[Any, Any]:
        """Forward, with the settings."""
        return self.forward(*inputs, **self.settings())

    def grads(self, dy: Any, saved: Any) -> Inputs:
        """Backward, always as a tuple."""
        grads = self.backward(dy, saved)
        return grads if isinstance(grads, tuple) else (grads,)


def cast(arrays: Inputs, dtype: type[np.floating]) -> Inputs:
    """Floating arrays in dtype, the others (ids, masks) as they are."""
    return tuple(a.astype(dtype) if a.dtype.kind == "f" else a for a in arrays)


def functions(module: ModuleType, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Forward and backward of an operation."""
    return getattr(module, f"{name}_forward"), getattr(module, f"{name}_backward")


def normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator, tuple[int, ...]], Inputs]:
    """Random data of these shapes behind the leading axes."""
    return lambda rng, lead: tuple(rng.standard_normal((*lead, *shape)) for shape in shapes)


def shared(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], Inputs]:
    """Random parameters of these shapes."""
    return lambda rng: normal(*shapes)(rng, ())


def ids(rng: np.random.Generator, lead: tuple[int, ...]) -> Inputs:
    return (rng.integers(0, V, (*lead, T)),)


def logits_and_targets(rng: np.random.Generator, lead: tuple[int, ...]) -> Inputs:
    """About a fifth of the targets is ignored."""
    ignored = rng.random((*lead, T)) < 0.2
    targets = np.where(ignored, -100, rng.integers(0, V, (*lead, T)))
    return rng.standard_normal((*lead, T, V)), targets


def vectors_and_targets(rng: np.random.Generator, lead: tuple[int, ...]) -> Inputs:
    """As `logits_and_targets`, before lm_head."""
    return rng.standard_normal((*lead, T, D)), logits_and_targets(rng, lead)[1]


def off_zero(rng: np.random.Generator, lead: tuple[int, ...]) -> Inputs:
    """Random numbers that are not near 0, where ReLU has its kink."""
    x = rng.standard_normal((*lead, T, F))
    return (x + 0.1 * np.sign(x),)


def positive(rng: np.random.Generator, lead: tuple[int, ...]) -> Inputs:
    return (rng.uniform(0.5, 1.5, (*lead, T, F)),)


def probs_and_choice(rng: np.random.Generator, lead: tuple[int, ...]) -> Inputs:
    """Any positive numbers, and two chosen in each row, whatever the numbers."""
    (probs,) = positive(rng, lead)
    return probs, rng.permuted(np.arange(F) < 2 + np.zeros((*lead, T, 1)), axis=-1)


def some_mask() -> np.ndarray:
    """Causal for T < S, but the second query may attend to nothing."""
    allowed = mask.causal_mask(T, S).copy()
    allowed[1] = False
    return allowed


def some_turns() -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine for five positions that are not in order."""
    return rope.rotation(np.array([3, 0, 7, 7, 1]), rope.default_frequencies(D_H, 50.0))


# Name of the operation, perhaps with a variant after a space -> how to call it.
CASES = {
    "lookup": Case(*functions(lookup, "lookup"), ids, shared((V, D))),
    "position": Case(
        *functions(position, "position"),
        lambda rng, lead: (
            rng.standard_normal((*lead, T, D)),
            rng.integers(0, N_POSITIONS, (*lead, T)),
        ),
        shared((N_POSITIONS, D)),
    ),
    "position shared": Case(
        *functions(position, "position"),
        normal((T, D)),
        lambda rng: (np.array([1, 0, 0, 8, 4]), rng.standard_normal((N_POSITIONS, D))),
    ),
    "rope": Case(
        *functions(rope, "rope"),
        normal((H, T, D_H)),
        settings=lambda: dict(zip(("cos", "sin"), some_turns(), strict=True)),
    ),
    "project": Case(*functions(project, "project"), normal((T, D)), shared((D, F))),
    "linear": Case(*functions(linear, "linear"), normal((T, D)), shared((D, F), (F,))),
    "split_heads": Case(
        *functions(heads, "split_heads"), normal((T, D)), settings=lambda: {"n_head": H}
    ),
    "merge_heads": Case(*functions(heads, "merge_heads"), normal((H, T, D_H))),
    "group_queries": Case(
        *functions(shared_heads, "group_queries"),
        normal((2 * H, T, D_H)),
        settings=lambda: {"n_kv_head": H},
    ),
    "ungroup_queries": Case(*functions(shared_heads, "ungroup_queries"), normal((H, 2, T, D_H))),
    "share_heads": Case(
        *functions(shared_heads, "share_heads"),
        normal((H, S, D_H)),
        settings=lambda: {"n_group": 2},
    ),
    "scores": Case(*functions(scores, "scores"), normal((T, D_H), (S, D_H))),
    "scale": Case(*functions(scores, "scale"), normal((T, S)), settings=lambda: {"divisor": 1.7}),
    "mask": Case(*functions(mask, "mask"), normal((T, S)), lambda rng: (some_mask(),)),
    "softmax": Case(*functions(softmax, "softmax"), normal((T, S)), settings=lambda: {"axis": -1}),
    "softmax along queries": Case(
        *functions(softmax, "softmax"), normal((T, S)), settings=lambda: {"axis": -2}
    ),
    "top_k": Case(*functions(router, "top_k"), normal((T, F)), settings=lambda: {"k": 3}),
    "renormalise": Case(*functions(router, "renormalise"), positive),
    "load_balance": Case(
        *functions(load_balance, "load_balance"),
        probs_and_choice,
        settings=lambda: {"counted": np.arange(T) != 1},
    ),
    "weighted_sum": Case(*functions(weighted_sum, "weighted_sum"), normal((T, S), (S, D_H))),
    "flash_attention": Case(
        *functions(flash_attention, "flash_attention"),
        normal((H, T, D_H), (H, S, D_H), (H, S, D_H)),
        settings=lambda: {"divisor": 1.7, "mask": some_mask()},
    ),
    "gelu_tanh": Case(*functions(activation, "gelu_tanh"), normal((T, F))),
    "gelu_erf": Case(*functions(activation, "gelu_erf"), normal((T, F))),
    "relu": Case(*functions(activation, "relu"), off_zero),
    "silu": Case(*functions(activation, "silu"), normal((T, F))),
    "tanh": Case(*functions(activation, "tanh"), normal((T, F))),
    "layer_norm": Case(
        *functions(layer_norm, "layer_norm"),
        normal((T, D)),
        shared((D,), (D,)),
        lambda: {"eps": 1e-5},
    ),
    "rms_norm": Case(
        *functions(rms_norm, "rms_norm"), normal((T, D)), shared((D,)), lambda: {"eps": 1e-5}
    ),
    "lm_head": Case(*functions(lm_head, "lm_head"), normal((T, D)), shared((V, D))),
    "lm_head_loss": Case(
        *functions(lm_head_loss, "lm_head_loss"), vectors_and_targets, shared((V, D))
    ),
    "dropout": Case(
        *functions(dropout, "dropout"),
        normal((T, D)),
        settings=lambda: {"p": 0.3, "rng": np.random.default_rng(7)},
    ),
    "cross_entropy": Case(*functions(cross_entropy, "cross_entropy"), logits_and_targets),
    "label_smoothing": Case(
        *functions(label_smoothing, "label_smoothing"),
        logits_and_targets,
        settings=lambda: {"smoothing": 0.15},
    ),
}


def operations() -> set[str]:
    """Every NAME for which some file of npgpt.ops defines NAME_forward."""
    modules = [
        importlib.import_module(f"npgpt.ops.{found.name}")
        for found in pkgutil.iter_modules(ops.__path__)
    ]
    names = {name for module in modules for name in vars(module)}
    return {name.removesuffix("_forward") for name in names if name.endswith("_forward")}
