"""Rotary positions (RoPE): turn queries and keys by an angle that grows with the position (6.2).

The article's method 2. A key at position n turned by n θ and a query at m turned by m θ meet at
the angle (n - m) θ: their product knows the distance and nothing else. d_h / 2 pairs of coordinates
turn, each with its own frequency; pair i is made of the coordinates i and i + d_h / 2, as Hugging
Face lays them out.

The ways to choose the frequencies (`*_frequencies`, float64 [d_h/2]) are Hugging Face's
`rope_type` "default", "linear", "dynamic", "llama3" and "yarn". Leaves out turning a part of a
head.
"""

from __future__ import annotations

import math

import numpy as np

Saved = tuple[np.ndarray, np.ndarray]  # cos, sin


def rope_forward(x: np.ndarray, *, cos: np.ndarray, sin: np.ndarray) -> tuple[np.ndarray, Saved]:
    """Turn every pair of coordinates (x₁, x₂) by its token's angle. Article 6.2, method 2.

        y₁ = x₁ cos - x₂ sin            x₁ = x[..., : d_h/2]
        y₂ = x₁ sin + x₂ cos            x₂ = x[..., d_h/2 :]

    Args:
        x: queries or keys [..., T, d_h], d_h even.
        cos, sin: of the angles, broadcast against [..., T, d_h/2]; see `rotation`.

    Returns:
        y [..., T, d_h] in x's dtype, and what backward reads.
    """
    cos, sin = cos.astype(x.dtype, copy=False), sin.astype(x.dtype, copy=False)
    half = x.shape[-1] // 2
    x_1, x_2 = x[..., :half], x[..., half:]
    return np.concatenate([x_1 * cos - x_2 * sin, x_1 * sin + x_2 * cos], axis=-1), (cos, sin)


def rope_backward(dy: np.ndarray, saved: Saved) -> np.ndarray:
    """Gradient of x: a turn's transpose is the turn back, by the negative angle.

        dx₁ =  dy₁ cos + dy₂ sin
        dx₂ = -dy₁ sin + dy₂ cos

    Args:
        dy: [..., T, d_h].

    Returns:
        dx [..., T, d_h].
    """
    cos, sin = saved
    return rope_forward(dy, cos=cos, sin=-sin)[0]


def rotation(positions: np.ndarray, frequencies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of every token's angles: position times frequency.

    In float64 whatever the model's dtype: in float32 the angle of token 8000 would be off by half a
    thousandth.

    Args:
        positions: [..., T] integers.
        frequencies: angle from one position to the next, of each pair [d_h/2].

    Returns:
        cos and sin [..., T, d_h/2], float64.
    """
    angles = positions[..., None] * frequencies
    return np.cos(angles), np.sin(angles)


def default_frequencies(d_h: int, theta: float) -> np.ndarray:
    """Frequencies from one radian a position down to about 1 / theta: theta^(-2 i / d_h)."""
    return theta ** (-np.arange(0, d_h, 2) / d_h)


def linear_frequencies(d_h: int, theta: float, factor: float) -> np.ndarray:
    """All frequencies divided by `factor`: a text that much longer turns no further than before."""
    return default_frequencies(d_h, theta) / factor


def dynamic_frequencies(
    d_h: int, theta: float, factor: float, max_position_embeddings: int, length: int
) -> np.ndarray:
    """The default up to N = `max_position_embeddings`; a longer text turns slow pairs still slower.

        theta' = theta (1 + factor (length / N - 1))^(d_h / (d_h - 2))

    The fastest pair keeps its frequency, the slowest is divided by the whole bracket. As the text
    grows beyond N, the angles of all its tokens change.
    """
    N = max_position_embeddings
    stretch = 1 + factor * (max(length, N) / N - 1)
    return default_frequencies(d_h, theta * stretch ** (d_h / (d_h - 2)))


def llama3_frequencies(
    d_h: int,
    theta: float,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: float,
) -> np.ndarray:
    """Llama 3.1: slow pairs are divided by `factor`, fast ones kept, those between blended.

    What counts is how many full turns a pair makes within `original_max_position_embeddings`
    tokens: fewer than `low_freq_factor`, it is slow; more than `high_freq_factor`, it is fast.
    """
    frequencies = default_frequencies(d_h, theta)
    turns = original_max_position_embeddings * frequencies / (2 * math.pi)
    kept = np.clip((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0, 1)
    return kept * frequencies + (1 - kept) * frequencies / factor


def yarn_frequencies(
    d_h: int,
    theta: float,
    factor: float,
    original_max_position_embeddings: float,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    *,
    truncate: bool = True,
) -> np.ndarray:
    """YaRN: as `llama3_frequencies`, but blended by a pair's place among the others.

    A pair is fast if it makes more than `beta_fast` full turns within the original context, slow if
    fewer than `beta_slow`; `truncate` widens what lies between to whole pairs. Peng et al. 2023.
    """
    frequencies = default_frequencies(d_h, theta)

    def pair_of(turns: float) -> float:
        longest = original_max_position_embeddings / (2 * math.pi * turns)
        return d_h * math.log(longest) / (2 * math.log(theta))

    first, last = pair_of(beta_fast), pair_of(beta_slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, d_h - 1)
    last += 0.001 * (first == last)  # so that it can be divided by
    kept = 1 - np.clip((np.arange(d_h // 2) - first) / (last - first), 0, 1)
    return kept * frequencies + (1 - kept) * frequencies / factor


def yarn_attention_factor(
    factor: float, mscale: float | None = None, mscale_all_dim: float | None = None
) -> float:
    """What YaRN multiplies queries and keys by, for a text `factor` times as long.

        0.1 mscale ln(factor) + 1

    divided by the same with mscale_all_dim if there are both, else with 1 for mscale.
    """

    def sharper(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0

    if mscale and mscale_all_dim:
        return sharper(mscale) / sharper(mscale_all_dim)
    return sharper(1.0)
