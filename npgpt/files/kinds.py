"""Of which kind a setting is, and the one check of the settings that any file brings.

A table of kinds says what each name may hold, as annotations do:

    {"n_layer": Size, "n_inner": Size | None, "dtype": str}

Size and its likes carry a `Kind`; a plain type (`int`, `float`, `str`, `bool`, `list[str]`,
`Mapping[str, Any]`) has one in `PLAIN`. Values are what JSON or a GGUF header gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args, get_origin

LARGEST = 2**31  # no size of a model comes near it; tiktoken keeps ids in 32 bits
MOST_BLOCKS = 10_000


class Kind(NamedTuple):
    """Which values a setting may have, and their name in an error."""

    holds: Callable[[Any], bool]
    says: str


def is_number(value: Any) -> bool:
    """Whether it is a finite number that a float holds, and no bool."""
    return type(value) in (int, float) and abs(value) < 1e300


def is_id(value: Any) -> bool:
    """Whether it can be the id of a token."""
    return type(value) is int and 0 <= value < LARGEST


def one_of(*choices: Any) -> Kind:
    """The kind of a setting that names one of several things."""
    return Kind(
        lambda v: any(v == c and type(v) is type(c) for c in choices),
        f"one of {', '.join(map(str, choices))}",
    )


def array_of(kind: Kind) -> Kind:
    """The kind of an array whose values are all of a kind."""
    return Kind(
        lambda v: isinstance(v, list) and all(map(kind.holds, v)),
        f"an array in which each value is {kind.says}",
    )


AN_INTEGER = Kind(lambda v: type(v) is int and abs(v) < 2**63, "an integer")
# Where a file names a token, -1 or another id that the model lacks means none.
AN_ID = AN_INTEGER._replace(says="the id of a token")
A_NUMBER = Kind(is_number, "a finite number")
A_TEXT = Kind(lambda v: isinstance(v, str), "a text")
PLAIN: dict[Any, Kind] = {
    int: AN_INTEGER,
    float: A_NUMBER,
    str: A_TEXT,
    bool: Kind(lambda v: isinstance(v, bool), "true or false"),
    list[str]: array_of(A_TEXT),
    list[int]: array_of(AN_INTEGER),
    list[float]: array_of(A_NUMBER),
    list[Any]: Kind(lambda v: isinstance(v, list), "an array"),
    Mapping[str, Any]: Kind(lambda v: isinstance(v, dict), "an object"),
}

Size = Annotated[int, Kind(lambda v: is_id(v) and v > 0, "a positive integer")]
Count = Annotated[int, Kind(is_id, "an integer >= 0")]
# Parameters are listed block by block before any is looked for; no model comes near so many.
Blocks = Annotated[
    int,
    Kind(lambda v: is_id(v) and 0 < v <= MOST_BLOCKS, f"a positive integer up to {MOST_BLOCKS}"),
]
Positive = Annotated[float, Kind(lambda v: is_number(v) and v > 0, "a number > 0")]
NonNegative = Annotated[float, Kind(lambda v: is_number(v) and v >= 0, "a number >= 0")]
Probability = Annotated[
    float, Kind(lambda v: is_number(v) and 0 <= v < 1, "a probability in [0, 1)")
]
Id = Annotated[int, AN_ID]
Ids = Annotated[
    int | list[int],
    Kind(lambda v: AN_ID.holds(v) or array_of(AN_ID).holds(v), "an id, or an array of ids"),
]


def check_kinds(table: Mapping[str, Any], kinds: Mapping[str, Any], where: str = "") -> None:
    """Raise ValueError, naming `where`, for a setting that is there and not of its kind."""
    place = f"{where}: " if where else ""
    for name in kinds:
        if name not in table:
            continue
        options = _options(kinds[name])
        if not any(kind.holds(table[name]) for kind in options):
            allowed = " or ".join(kind.says for kind in options)
            raise ValueError(f"{place}{name} is {table[name]!r:.60}, but must be {allowed}.")


def _options(annotation: Any) -> list[Kind]:
    """The kinds of an annotation: one, or several with `|` between them."""
    if annotation is NoneType:
        return [Kind(lambda v: v is None, "null")]
    if get_origin(annotation) is Annotated:
        return list(annotation.__metadata__)
    if annotation in PLAIN:
        return [PLAIN[annotation]]
    return [kind for option in get_args(annotation) for kind in _options(option)]
