"""What config.json may say: kinds of settings, and how a configuration is read and written.

A configuration is a frozen dataclass whose annotations say of which kind each setting is:

    vocab_size: Size = 50257  # a positive integer
    n_inner: Size | None = None  # one, or null

A setting of any other type (`float`, `str`) is taken as it comes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from npgpt.ops.activation import ACTIVATIONS


class Kind(NamedTuple):
    """Which values a setting may have, and what is said of any other."""

    holds: Callable[[Any], bool]
    says: str  # follows the setting's name; {} is the value


def is_number(value: Any) -> bool:
    """Whether it is a finite number."""
    return type(value) in (int, float) and math.isfinite(value)


def one_of(*choices: str) -> Kind:
    """The kind of a setting that names one of several things."""
    known = ", ".join(choices)
    return Kind(lambda v: v in choices, f"{{!r}} is unknown; choose one of {known}")


def is_id(value: Any) -> bool:
    """Whether it is an integer, and no bool."""
    return type(value) is int


Size = Annotated[
    int, Kind(lambda v: type(v) is int and v > 0, "is {!r}, but must be a positive integer")
]
Positive = Annotated[float, Kind(lambda v: is_number(v) and v > 0, "is {!r}, not a number > 0")]
NonNegative = Annotated[
    float, Kind(lambda v: is_number(v) and v >= 0, "is {!r}, not a number >= 0")
]
Probability = Annotated[
    float,
    Kind(lambda v: is_number(v) and 0 <= v < 1, "is {!r}, but must be a probability in [0, 1)"),
]
Flag = Annotated[bool, Kind(lambda v: isinstance(v, bool), "is {!r}, not true or false")]
Id = Annotated[int, Kind(is_id, "is {!r}, but must be the id of a token")]
Ids = Annotated[
    int | list[int],
    Kind(
        lambda v: all(map(is_id, v)) if isinstance(v, list) else is_id(v),
        "is {!r}, but must be an id, ids, or null",
    ),
]
Activation = Annotated[str, one_of(*ACTIVATIONS)]


def read_settings(
    cls: type[Any],
    raw: Mapping[str, Any],
    where: str,
    *,
    model_type: str,
    refused: Mapping[str, str],
) -> dict[str, Any]:
    """The arguments of a configuration `cls` from a parsed config.json; `where` names the file.

    What `cls` does not know goes into `other`. `refused`: settings that this model cannot follow,
    and why. Raises ValueError, one sentence, for one of those that is set, another model_type, and
    a value that is not of its setting's kind.
    """
    if raw.get("model_type", model_type) != model_type:
        raise ValueError(
            f"{where}: model_type is {raw['model_type']!r}, but must be {model_type!r}."
        )
    for name, reason in refused.items():
        if raw.get(name):
            raise ValueError(f"{where}: {name} is set, but {reason}.")
    hints = get_type_hints(cls, include_extras=True)
    own = {field.name: raw[field.name] for field in fields(cls) if field.name in raw}
    own.pop("other", None)
    for name, value in own.items():
        # `Size | None` has the arguments Size and NoneType, `Size` alone its type and its kind.
        options = (hints[name], *get_args(hints[name]))
        if value is None and NoneType in options:
            continue
        for kind in (kind for option in options for kind in getattr(option, "__metadata__", ())):
            if not kind.holds(value):
                raise ValueError(f"{where}: {name} {kind.says.format(value)}.")
    return {**own, "other": {name: raw[name] for name in raw if name not in own}}


def check_heads(config: Any, width: str, heads: str, where: str) -> None:
    """Raise ValueError unless the width is a multiple of the number of heads."""
    d, H = getattr(config, width), getattr(config, heads)
    if d % H:
        raise ValueError(f"{where}: {width} {d} cannot be cut into {heads} {H} heads.")


def as_raw(config: Any, **first: Any) -> dict[str, Any]:
    """The content of config.json: what no file said, then `other`, then every known setting."""
    own = {f.name: getattr(config, f.name) for f in fields(config) if f.name != "other"}
    return {**first, **config.other, **own}
