"""How a configuration is read from config.json, and written back.

A configuration is a frozen dataclass whose annotations say of which kind each setting is, see
`npgpt.files.kinds`. Whoever makes one, `check_config` checks it; who reads one from a file says
which, see `naming`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Annotated, Any, get_type_hints

import numpy as np

from npgpt.files.kinds import check_kinds, one_of
from npgpt.ops.activation import ACTIVATIONS

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
    and why. Raises ValueError, one sentence, for one of those that is set, and another model_type.
    """
    if raw.get("model_type", model_type) != model_type:
        raise ValueError(
            f"{where}: model_type is {raw['model_type']!r:.60}, but must be {model_type!r}."
        )
    for name, reason in refused.items():
        if raw.get(name):
            raise ValueError(f"{where}: {name} is set, but {reason}.")
    own = {field.name: raw[field.name] for field in fields(cls) if field.name in raw}
    own.pop("other", None)
    return {**own, "other": {name: raw[name] for name in raw if name not in own}}


@contextlib.contextmanager
def naming(where: str) -> Iterator[None]:
    """Put the name of the file before what a ValueError says of the configuration."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def check_config(config: Any) -> None:
    """Raise ValueError, one sentence, unless every setting is of its kind; for `__post_init__`.

    NumPy's numbers become Python's, which can be written to config.json.
    """
    kinds = _kinds(config.__class__)
    for name in kinds:
        if isinstance(value := getattr(config, name), np.generic):
            object.__setattr__(config, name, value.item())  # the configuration is frozen
    check_kinds(vars(config), kinds)


@functools.cache
def _kinds(cls: Any) -> dict[str, Any]:
    """The annotation of each setting."""
    kinds = get_type_hints(cls, include_extras=True)
    del kinds["other"]
    return kinds


def check_heads(config: Any, width: str, heads: str) -> None:
    """Raise ValueError unless the width is a multiple of the number of heads."""
    d, H = getattr(config, width), getattr(config, heads)
    if d % H:
        raise ValueError(f"{width} {d} cannot be cut into {heads} {H} heads.")


def as_raw(config: Any, **first: Any) -> dict[str, Any]:
    """The content of config.json: what no file said, then `other`, then every known setting."""
    own = {f.name: getattr(config, f.name) for f in fields(config) if f.name != "other"}
    return {**first, **config.other, **own}
