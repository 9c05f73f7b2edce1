"""sinusoids: the fixed positions of 2017, and Marian's order of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npgpt.ops.sinusoids import sinusoids, sinusoids_in_halves


def test_naive_loop() -> None:
    table = sinusoids(np.arange(7), 6)
    assert (table.shape, table.dtype) == ((7, 6), np.dtype(np.float64))
    for t, j in np.ndindex(7, 6):
        angle = t / 10_000 ** (2 * (j // 2) / 6)
        assert table[t, j] == pytest.approx((math.cos if j % 2 else math.sin)(angle), abs=1e-15)


def test_any_positions(rng: np.random.Generator) -> None:
    places = rng.integers(0, 40, 9)
    np.testing.assert_array_equal(sinusoids(places, 6), sinusoids(np.arange(40), 6)[places])


def test_position_0_is_zeros_and_ones() -> None:
    assert sinusoids(np.arange(1), 4).tolist() == [[0, 1, 0, 1]]
    assert sinusoids_in_halves(np.arange(1), 4).tolist() == [[0, 0, 1, 1]]


@pytest.mark.parametrize("d", [6, 7])
def test_halves_are_all_sines_then_all_cosines(d: int) -> None:
    table, halves, sines = (
        sinusoids(np.arange(5), d),
        sinusoids_in_halves(np.arange(5), d),
        (d + 1) // 2,
    )
    np.testing.assert_array_equal(halves[:, :sines], table[:, 0::2])
    np.testing.assert_array_equal(halves[:, sines:], table[:, 1::2])


def test_a_step_is_a_rotation_whatever_the_position() -> None:
    """Why the paper chose them: position t + 3 is a linear function of position t."""
    table, d = sinusoids(np.arange(50), 8), 8
    for pair in range(d // 2):
        angle = 3 / 10_000 ** (2 * pair / d)
        turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        here, there = table[:-3, 2 * pair : 2 * pair + 2], table[3:, 2 * pair : 2 * pair + 2]
        np.testing.assert_allclose(here @ turn, there, atol=1e-13)


@pytest.mark.parametrize("d", [6, 7])
@pytest.mark.hf
def test_halves_are_those_of_transformers(hf: None, d: int) -> None:
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    want = MarianSinusoidalPositionalEmbedding(30, d).create_weight().numpy()  # in float32
    np.testing.assert_array_equal(sinusoids_in_halves(np.arange(30), d).astype(np.float32), want)
