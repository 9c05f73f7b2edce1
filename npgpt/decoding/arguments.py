"""Numbers that a caller gives: each is checked here, and goes on as a Python number.

ValueError, one sentence with the argument's name, for whatever else it is: a text, None, NaN, a
bool where a number belongs.
"""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any

import numpy as np


def whole_number(name: str, value: Any, least: float, most: float = math.inf) -> int:
    """A count, from `least` to `most`."""
    try:
        number = operator.index(value)  # of NumPy's integers too, of no float and no text
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not least <= number <= most:
        raise _refusal(name, "a whole number", least, most, value)
    return number


def whole_numbers(name: str, values: Any, least: float = -math.inf) -> tuple[int, ...]:
    """A list or the like of them, all of at least `least`."""
    try:
        listed = list([None] if isinstance(values, (str, bytes)) else values)
        return tuple(whole_number(name, value, least) for value in listed)
    except (TypeError, ValueError):
        raise _refusal(name, "a list of whole numbers", least, math.inf, values) from None


def real_number(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite number, from `least` to `most`."""
    try:
        number = float(value) if isinstance(value, Real) else math.nan
    except OverflowError:  # an integer beyond all floats
        number = math.inf
    if isinstance(value, bool) or not (math.isfinite(number) and least <= number <= most):
        raise _refusal(name, "a finite number", least, most, value)
    return number


def flag(name: str, value: Any) -> bool:
    """Yes or no; a text such as "no" would count as yes."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, but is {value!r:.60}.")
    return bool(value)


def _refusal(name: str, what: str, least: float, most: float, value: Any) -> ValueError:
    limits = f" from {least} to {most}" if most < math.inf else f" of at least {least}"
    limits = limits if least > -math.inf else ""
    return ValueError(f"{name} must be {what}{limits}, but is {value!r:.60}.")
