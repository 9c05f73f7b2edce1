"""What a case is, and the cases of all operations and layers: each pair of forward and backward.

A case is computed twice: in float64 for its numbers, in float32 for what rounding does to them. So
all that it is given are numbers that float32 holds.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from npgpt import layers, ops
from npgpt.vectors.inputs import LAYERS, OPERATIONS, Cases, Draw

Arrays = dict[str, np.ndarray]
Float = type[np.floating[Any]]
Function = Callable[..., Any]


class Computed(NamedTuple):
    """A case in one dtype, under the names of the file."""

    inputs: Arrays
    settings: Mapping[str, Any]  # numbers and texts
    outputs: Arrays
    upstream: Arrays  # the gradients of outputs that backward starts from
    gradients: Arrays


class Case(NamedTuple):
    """A name kind/operation.case, what is computed, and the function that does so in a dtype."""

    name: str
    formula: str
    backward: str
    compute: Callable[[Float], Computed]


def pairs(package: ModuleType) -> dict[str, tuple[Function, Function]]:
    """Operation -> its forward and backward, of all modules of a package."""
    found = {}
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        for name, function in vars(module).items():
            operation = name.removesuffix("_forward")
            if operation != name and function.__module__ == module.__name__:
                found[operation] = function, getattr(module, f"{operation}_backward")
    return found


def operation_cases() -> Iterator[Case]:
    """The cases of `inputs.py`."""
    yield from _cases_of("ops", ops, OPERATIONS)
    yield from _cases_of("layers", layers, LAYERS)


def _cases_of(kind: str, package: ModuleType, table: Mapping[str, Cases]) -> Iterator[Case]:
    functions = pairs(package)
    for operation, cases in table.items():
        forward, backward = functions[operation]
        for case, given in cases.items():
            name = f"{kind}/{operation}.{case}"
            compute = partial(_both_ways, forward, backward, given, name)
            yield Case(name, formulas(forward), formulas(backward), compute)


def formulas(part: object) -> str:
    """The indented lines of a docstring before its arguments; without any, its first paragraph."""
    text = (inspect.getdoc(part) or "").partition("\nArgs:")[0].partition("\nReturns:")[0]
    indented = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return "\n".join(indented) or " ".join(text.partition("\n\n")[0].split())


def generator(name: str) -> np.random.Generator:
    """Every case draws by itself, so that one that is added changes no other."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def made(value: Any, rng: np.random.Generator, dtype: Float) -> Any:
    """A shape or `Draw` as random numbers, arrays of floats as what float32 holds, in `dtype`."""
    if isinstance(value, tuple):
        shape, scale, shift, visible = value if isinstance(value, Draw) else Draw(value)
        value = np.where(visible, shift + scale * rng.standard_normal(shape), -np.inf)
    floats = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return value.astype(np.float32).astype(dtype) if floats else value


def as_array(value: Any) -> np.ndarray:
    """A number as an array without axes, a text as the bytes of its UTF-8."""
    if isinstance(value, str):
        return np.array([*value.encode()], np.uint8)
    return np.array(value)


def _both_ways(
    forward: Function, backward: Function, given: Mapping[str, Any], name: str, dtype: Float
) -> Computed:
    """Forward, then backward from random gradients of the outputs.

    Names are those of the arguments: backward is given dy for an output y, and gives dx for x.
    """
    rng, there, back = generator(name), Arrays(), Arrays()
    values = {key: made(value, rng, dtype) for key, value in given.items()}
    parameters = inspect.signature(forward).parameters
    observed = "station" in parameters
    stations = {"station": _keep_in(there, "")} if observed else {}
    result, saved = forward(**_arguments(values, "cos_sin" in parameters), **stations)
    arriving = [key for key in inspect.signature(backward).parameters if key.startswith("d")]
    results = dict(zip(arriving, result if len(arriving) > 1 else [result], strict=True))
    upstream = {key: made(np.shape(array), rng, dtype) for key, array in results.items()}
    grads = backward(*upstream.values(), saved, *([_keep_in(back, "d")] if observed else []))
    if "rng" in values:  # no port draws the same
        values["keep"], _ = saved
    inputs = {key: value for key, value in values.items() if isinstance(value, np.ndarray)}
    return Computed(
        inputs,
        {key: value for key, value in values.items() if key not in inputs and key != "rng"},
        there | {key[1:]: np.asarray(array) for key, array in results.items()},
        upstream,
        {key: back[key] for key in back if key not in upstream}
        | _gradients(parameters, inputs, grads),
    )


def _arguments(values: Mapping[str, Any], pairwise: bool) -> dict[str, Any]:
    """As a forward function takes them: a generator for its seed, cosine and sine as a pair."""
    arguments = dict(values)
    if "rng" in arguments:
        arguments["rng"] = np.random.default_rng(arguments["rng"])
    if pairwise:
        arguments["cos_sin"] = arguments.pop("cos"), arguments.pop("sin")
    return arguments


def _gradients(parameters: Mapping[str, inspect.Parameter], inputs: Arrays, grads: Any) -> Arrays:
    """Those of the floats among the positional arguments; some may be left out, and have none."""
    names = [
        f"d{key}"
        for key, parameter in parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and (key not in inputs or inputs[key].dtype.kind == "f")
    ]
    found = zip(names, grads if isinstance(grads, tuple) else (grads,), strict=True)
    return {name: grad for name, grad in found if grad is not None}


def _keep_in(arrays: Arrays, prefix: str) -> Callable[[str, np.ndarray], np.ndarray]:
    """A station that keeps what it is shown."""

    def station(name: str, array: np.ndarray) -> np.ndarray:
        arrays[prefix + name] = array
        return array

    return station
