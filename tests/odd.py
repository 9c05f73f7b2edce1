"""What an argument may not be, what it may be instead of the plain one, and how it is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

NAN, INF = math.nan, math.inf


class Odd:
    """What nothing can be made of."""

    def __repr__(self) -> str:
        return "Odd()"


# What an argument may not be.
NO_NUMBERS: list[Any] = ["3", b"1", [1], np.array([1]), {}, Odd(), 1j]
NO_COUNTS = [*NO_NUMBERS, 2.5, 3.0, np.float64(2), True, NAN, INF, -1]
NO_REALS = [*NO_NUMBERS, True, NAN, INF, -INF, 10**400]
NO_FLAGS: list[Any] = ["no", "False", 2, 0, None, NAN, [], Odd()]
NO_PATHS: list[Any] = [None, 5, b"x", "", "a\0b", ["x"], NAN, Odd()]
RAGGED: list[Any] = [[[1, 2], [3]], [[1, 2], 3]]
NO_ROWS: list[Any] = [
    "111",
    b"111",
    Odd(),
    {1},
    {1: 1},
    1,
    [],
    [[[1, 1, 1]]],
    np.zeros((0, 3), int),
]
NO_INTEGERS: list[Any] = [
    *([1.0, 2.0, 3.0], [NAN] * 3, [True, False, True], ["1", "2", "3"], [None] * 3, [Odd()] * 3),
    *([1j, 2, 3], [10**30, 1, 1], [1, "a", 2]),
    *(np.array([1, 2, 3], dtype) for dtype in ("m8[s]", "M8[s]", object, "S1", np.float16)),
]
NO_ROW_OF_THE_TABLE: list[Any] = [[-1, 1, 2], [1, 19, 2], [2**31, 1, 2], np.full(3, 2**64 - 100)]
NO_IDS = [*RAGGED, *NO_ROWS, *NO_INTEGERS, *NO_ROW_OF_THE_TABLE, None]
NO_MASK = [
    *(*RAGGED, *NO_ROWS, [1, 1], [[1, 1, 1]]),
    *([1, 2, 1], [0, -1, 1], [1, NAN, 1], [0.0, -INF, 0.0], [0.5, 1, 1], [1e-300, 1, 1]),
    *(["1", "1", "1"], [None] * 3, [Odd()] * 3, [1j, 1, 1], np.ones(3, "m8[s]")),
]
NO_TYPES = [*RAGGED, *NO_ROWS, *NO_INTEGERS, [0, 2, 0], [-1, 0, 0], [0, 0]]
NO_TARGETS = [*NO_IDS, [1, -5, 2], [-101, 1, 2]]
NO_CACHE: list[Any] = [True, 5, [], "x", ((1, 2),), Odd()]
NO_RNG: list[Any] = [0, 5, True, "x", np.random.RandomState(0), np.random]
NO_STOPS: list[Any] = [5, "6", b"6", ["6"], [2.5], [None], [[6]], NAN, Odd(), np.array(6)]
NO_ALLOWED: list[Any] = [5, "x", [True] * 5, [1] * 19, np.ones(19), np.ones((1, 19), bool), Odd()]

# What it may be, as well as the plain one.
SAME_IDS: list[Any] = [
    *((1, 2, 3), range(1, 4), [np.int8(1), 2, np.uint8(3)], np.arange(3, 0, -1)[::-1]),
    *(np.array([1, 2, 3], dtype) for dtype in ("i1", "u1", ">i4", "u8")),
]
SAME_MASK = [[True] * 3, [1.0] * 3, np.ones(3, "f2"), np.ones(3, "u1"), (1, 1, 1), None]
SAME_COUNT = [np.int64(2), np.uint8(2), np.array(2)]
SAME_REAL = [2, 2.0, np.float32(2), np.int8(2), np.longdouble(2), Fraction(2)]


def sentence(call: Callable[..., Any], *args: Any, **given: Any) -> str:
    """The one sentence with which a call is refused."""
    with pytest.raises((ValueError, TypeError)) as caught:
        call(*args, **given)
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    assert ". " not in text
    return text
