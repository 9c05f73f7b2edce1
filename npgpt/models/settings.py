"""How a configuration is read from config.json, and written back.

A configuration is a frozen dataclass whose annotations say of which kind each setting is, see
`npgpt.files.kinds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, get_type_hints

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
    and why. Raises ValueError, one sentence, for one of those that is set, another model_type, and
    a value that is not of its setting's kind.
    """
    if raw.get("model_type", model_type) != model_type:
        raise ValueError(
            f"{where}: model_type is {raw['model_type']!r:.60}, but must be {model_type!r}."
        )
    for name, reason in refused.items():
        if raw.get(name):
            raise ValueError(f"{where}: {name} is set, but {reason}.")
    kinds = get_type_hints(cls, include_extras=True)
    del kinds["other"]
    check_kinds(raw, kinds, where)
    own = {name: raw[name] for name in kinds if name in raw}
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
