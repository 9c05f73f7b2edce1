"""rope: turn queries and keys by their positions (article 6.2, method 2)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npgpt.ops.rope import (
    default_frequencies,
    dynamic_frequencies,
    rope_forward,
    rotation,
    yarn_attention_factor,
    yarn_frequencies,
)


def turned(x: np.ndarray, position: int, frequencies: np.ndarray) -> np.ndarray:
    cos, sin = rotation(np.array([position]), frequencies)
    return rope_forward(x[None], cos=cos, sin=sin)[0][0]


def test_article_30_degrees_a_position() -> None:
    """猫 looks at 狗 two to the right 0.268, two to the left 3.732, wherever they stand."""
    frequencies = np.array([math.radians(30)])
    cat, dog = np.array([2.0, 0.0]), np.array([2.0, 1.0])
    for first in (0, 1, 7):
        to_the_right = turned(cat, first, frequencies) @ turned(dog, first + 2, frequencies)
        to_the_left = turned(cat, first + 2, frequencies) @ turned(dog, first, frequencies)
        assert round(float(to_the_right), 3) == 0.268
        assert round(float(to_the_left), 3) == 3.732
    assert cat @ dog == 4


def test_naive_loop(rng: np.random.Generator) -> None:
    """Pair i is made of coordinates i and i + d_h/2, as complex numbers."""
    H, T, d_h, theta = 2, 5, 6, 100.0
    x = rng.standard_normal((H, T, d_h))
    positions = np.array([4, 0, 9, 9, 2])
    cos, sin = rotation(positions, default_frequencies(d_h, theta))
    y, _ = rope_forward(x, cos=cos, sin=sin)
    for h, t, i in np.ndindex(H, T, d_h // 2):
        angle = int(positions[t]) / theta ** (2 * i / d_h)
        want = complex(x[h, t, i], x[h, t, i + 3]) * complex(math.cos(angle), math.sin(angle))
        assert complex(y[h, t, i], y[h, t, i + 3]) == pytest.approx(want, rel=1e-13)


def test_a_far_token_keeps_its_angle_in_float32() -> None:
    frequencies = default_frequencies(4, 10000.0) * 0.7
    cos, sin = rotation(np.array([100_000]), frequencies)
    y, _ = rope_forward(np.array([[1, 0, 0, 0]], np.float32), cos=cos, sin=sin)
    assert y.dtype == np.float32
    assert y[0, 0] == pytest.approx(math.cos(70_000), abs=1e-6)


def test_lengths_stay(rng: np.random.Generator) -> None:
    x = rng.standard_normal((7, 8))
    cos, sin = rotation(np.arange(7), default_frequencies(8, 10.0))
    y, _ = rope_forward(x, cos=cos, sin=sin)
    np.testing.assert_allclose(np.linalg.norm(y, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-13)
    np.testing.assert_array_equal(y[0], x[0])


def test_dynamic_frequencies_change_beyond_the_trained_length_only() -> None:
    """There the fastest pair is kept, the slowest divided by factor · length / N - factor + 1."""
    plain = default_frequencies(8, 100.0)
    for length in (1, 10):
        np.testing.assert_array_equal(dynamic_frequencies(8, 100.0, 4.0, 10, length), plain)
        np.testing.assert_array_equal(dynamic_frequencies(8, 100.0, 1e17, 10, length), plain)
    stretched = dynamic_frequencies(8, 100.0, 4.0, 10, 15)
    assert stretched[0] == plain[0]
    assert stretched[-1] == pytest.approx(plain[-1] / 3, rel=1e-13)


def test_yarn_by_hand() -> None:
    """Pairs of 8 with θ = 16: 1, 1/2, 1/4, 1/8 radians; 16 tokens are 2.5, 1.3, 0.6, 0.3 turns."""
    plain = default_frequencies(8, 16.0)
    pair_of = [4 * math.log(16 / (2 * math.pi * turns)) / math.log(16) for turns in (2, 0.5)]
    assert [round(pair, 2) for pair in pair_of] == [0.35, 2.35]
    slower = yarn_frequencies(8, 16.0, 4.0, 16.0, 2.0, 0.5)  # blended from pair 0 to pair 3
    share = np.array([0, 1, 2, 3]) / 3
    np.testing.assert_allclose(slower, plain * (1 - share + share / 4), rtol=1e-13)
    exact = yarn_frequencies(8, 16.0, 4.0, 16.0, 2.0, 0.5, truncate=False)
    share = np.clip((np.arange(4) - pair_of[0]) / 2, 0, 1)
    np.testing.assert_allclose(exact, plain * (1 - share + share / 4), rtol=1e-13)


def test_yarn_sharpens_what_a_longer_text_spreads() -> None:
    assert yarn_attention_factor(math.e) == pytest.approx(1.1)
    assert yarn_attention_factor(math.e, 2.0, 1.0) == pytest.approx(1.2 / 1.1)
    assert yarn_attention_factor(math.e, 2.0) == pytest.approx(1.1)
    assert yarn_attention_factor(0.5) == yarn_attention_factor(1.0, 2.0, 1.0) == 1
