"""Arrays of another shape that hold the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from npgpt.compare.dump import Dump, match_stations
from npgpt.compare.layouts import SAME, same_numbers
from tests.compare.planted import compared, model_and_stations, port

HEADS = np.random.default_rng(1).standard_normal((3, 5, 4))
MATRIX = np.random.default_rng(2).standard_normal((5, 12))


@pytest.mark.parametrize(
    ("says", "ours", "theirs"),
    [
        ("the transpose", MATRIX, MATRIX.T),
        ("the heads merged, [T, H d_h]", HEADS, np.concatenate([*HEADS], axis=1)),
        ("positions before heads, [T, H, …]", HEADS, np.stack([*HEADS], axis=1)),
        ("the heads split, [T, H, d_h]", MATRIX, MATRIX.reshape(5, 3, 4)),
        ("the heads split, [H, T, d_h]", MATRIX, np.stack(np.split(MATRIX, 3, axis=1))),
        ("an axis of 1 at another place", MATRIX, MATRIX[:, None]),
        ("one axis instead of all", MATRIX, MATRIX.ravel()),
        ("the last position alone", MATRIX, MATRIX[-1]),
        ("the last position alone", MATRIX, MATRIX[-1:]),
        ("the first of several texts", MATRIX, np.stack([MATRIX, 2 * MATRIX])),
        ("padding behind it", MATRIX, np.pad(MATRIX, ((0, 0), (0, 4)))),
        ("padding behind it", MATRIX, np.pad(MATRIX, ((0, 3), (0, 0)))),
    ],
)
def test_each_layout(says, ours, theirs) -> None:
    assert same_numbers(ours, theirs) == says
    assert same_numbers(ours, theirs * (1 + SAME / 2)) == says  # as the rounding of bfloat16
    assert same_numbers(ours, theirs[::-1] + 1) is None
    assert same_numbers(0 * ours, 0 * theirs) is None  # zeros fit everything


def test_masked_scores_may_be_anything() -> None:
    scores = np.where(np.tri(5, dtype=bool), HEADS[:, :, :1], -np.inf)
    theirs = np.where(np.isfinite(scores), scores, 7.0).swapaxes(0, 1)
    assert same_numbers(scores, theirs) == "positions before heads, [T, H, …]"


def test_the_refusal_says_what_it_is() -> None:
    arrays = {"a": MATRIX.T, "b": MATRIX.T, "c": np.zeros((4, 4)), "d": MATRIX}
    dump = Dump(arrays, dict.fromkeys(arrays, "float64"))
    with pytest.raises(
        ValueError,
        match=r"'a' has shape \[12, 5\], but npgpt's has \[5, 12\], and the same numbers: "
        r"the transpose; 2 more differ as well; the transpose: b\.$",
    ):
        match_stations(dict.fromkeys("abcd", MATRIX), dump, [], "x.npz")


@pytest.mark.parametrize("local", [False, True])
def test_a_gradient_of_another_shape(local) -> None:
    name = "grad.h.1.mlp.c_fc.weight"
    _, own = model_and_stations("gpt2", "float32")
    dumped = port("gpt2", "float32", {}) | {name: own[name].T}
    with pytest.raises(ValueError, match=f"{name!r} .* the same numbers: the transpose"):
        compared("gpt2", "float32", dumped, local=local)
