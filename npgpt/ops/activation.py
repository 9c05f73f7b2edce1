"""The nonlinearity of the FFN (article 8.1). Without one, any number of layers is one matrix.

GPT-2 uses the tanh form of GELU ("gelu_new"); BERT and some GPT-2 configurations the exact form
("gelu"). The two differ by up to 5e-4, so they are never interchangeable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from npgpt.ops.chunks import map_chunks
from npgpt.ops.normal_cdf import normal_cdf, normal_pdf

SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def gelu_tanh_forward(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """GELU, tanh form: the one GPT-2 was trained with. Article 8.1.

        y = x/2 (1 + tanh u),       u = √(2/π) (x + 0.044715 x³)

    Args:
        x: any shape.

    Returns:
        y, like x, and x, which backward reads.
    """
    x = np.asarray(x, order="C")
    y = np.empty_like(x)

    def activate(x: np.ndarray, y: np.ndarray) -> None:
        _tanh_u(x, y)  # y = tanh u
        y += 1  # 1 + tanh u
        y *= x  # x (1 + tanh u)
        y *= 0.5  # x/2 (1 + tanh u)

    map_chunks(activate, x.reshape(-1), y.reshape(-1))
    return y, x


def gelu_tanh_backward(dy: np.ndarray, saved: np.ndarray) -> np.ndarray:
    """Gradient of x, by the product rule and tanh' = 1 - tanh².

        y' = (1 + tanh u)/2 + x/2 (1 - tanh² u) u',         u' = √(2/π) (1 + 3 · 0.044715 x²)

    tanh u is computed once more: that costs less than keeping it for every layer.

    Args:
        dy: like x.

    Returns:
        dx, like x.
    """
    dx = np.empty_like(saved)

    def slope_times_dy(x: np.ndarray, dy: np.ndarray, slope: np.ndarray) -> None:
        tanh_u = _tanh_u(x, np.empty_like(x))
        np.multiply(x, x, out=slope)  # x²
        slope *= 3 * 0.044715 * SQRT_2_OVER_PI  # √(2/π) 3 · 0.044715 x²
        slope += SQRT_2_OVER_PI  # u'
        slope *= x  # x u'
        slope *= 1 - tanh_u * tanh_u  # x (1 - tanh² u) u'
        slope += tanh_u  # tanh u + x (1 - tanh² u) u'
        slope += 1  # 2 y'
        slope *= 0.5  # y'
        slope *= dy  # dx

    map_chunks(slope_times_dy, saved.reshape(-1), dy.reshape(-1), dx.reshape(-1))
    return dx


def _tanh_u(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    """tanh(√(2/π) (x + 0.044715 x³)), written into `out`."""
    np.multiply(x, x, out=out)  # x²
    out *= 0.044715 * SQRT_2_OVER_PI  # √(2/π) 0.044715 x²
    out += SQRT_2_OVER_PI  # √(2/π) (1 + 0.044715 x²)
    out *= x  # u
    return np.tanh(out, out=out)


def gelu_erf_forward(x: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """GELU, exact form.

        y = x Φ(x),         Φ(x) = (1 + erf(x/√2)) / 2

    Args:
        x: any shape.

    Returns:
        y, like x, and (x, Φ(x)), which backward reads. In float64 the error is below 1e-15 up to
            |x| = 8, and less than one unit in the last place beyond.
    """
    phi = normal_cdf(x)
    return x * phi, (x, phi)


def gelu_erf_backward(dy: np.ndarray, saved: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Gradient of x, by the product rule: y' = Φ(x) + x φ(x), where φ = Φ' is the normal density.

    Args:
        dy: like x.

    Returns:
        dx, like x.
    """
    x, phi = saved
    return dy * (phi + x * normal_pdf(x))


def relu_forward(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ReLU: y = max(x, 0). Article 8.1.

    Args:
        x: any shape.

    Returns:
        y, like x, and where x > 0, which backward reads.
    """
    return np.maximum(x, 0), x > 0


def relu_backward(dy: np.ndarray, saved: np.ndarray) -> np.ndarray:
    """Gradient of x: dy where x > 0, else 0 (0 at x = 0, as PyTorch has it).

    Args:
        dy: like x.

    Returns:
        dx, like x.
    """
    return dy * saved


def silu_forward(x: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """SiLU (swish): y = x σ(x), with σ(x) = 1 / (1 + exp(-x)).

    Far on the left, in float32 below -88, exp(-x) overflows and y becomes 0; it is closer to 0 than
    1e-36 there.

    Args:
        x: any shape.

    Returns:
        y, like x, and (x, σ(x)), which backward reads.
    """
    with np.errstate(over="ignore"):
        sigmoid = 1 / (1 + np.exp(-x))
    return x * sigmoid, (x, sigmoid)


def silu_backward(dy: np.ndarray, saved: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Gradient of x. With σ' = σ (1 - σ): y' = σ + x σ (1 - σ).

    Args:
        dy: like x.

    Returns:
        dx, like x.
    """
    x, sigmoid = saved
    return dy * sigmoid * (1 + x * (1 - sigmoid))


def tanh_forward(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hyperbolic tangent: y = tanh x.

    Args:
        x: any shape.

    Returns:
        y, like x, and y again, which backward reads.
    """
    y = np.tanh(x)
    return y, y


def tanh_backward(dy: np.ndarray, saved: np.ndarray) -> np.ndarray:
    """Gradient of x: y' = 1 - y².

    Args:
        dy: like x.

    Returns:
        dx, like x.
    """
    return dy * (1 - saved * saved)


# Hugging Face's names (`activation_function` in config.json) -> forward and backward.
ACTIVATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "gelu_new": (gelu_tanh_forward, gelu_tanh_backward),
    "gelu_pytorch_tanh": (gelu_tanh_forward, gelu_tanh_backward),
    "gelu": (gelu_erf_forward, gelu_erf_backward),
    "relu": (relu_forward, relu_backward),
    "silu": (silu_forward, silu_backward),
    "tanh": (tanh_forward, tanh_backward),
}
