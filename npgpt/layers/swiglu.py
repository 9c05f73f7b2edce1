"""The gated feed-forward network (SwiGLU): one projection decides what of another passes (8.1)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npgpt.layers.stations import Station, unobserved
from npgpt.ops.activation import ACTIVATIONS
from npgpt.ops.project import Saved as ProjectSaved
from npgpt.ops.project import project_backward, project_forward


class SwiGLUSaved(NamedTuple):
    """What `swiglu_backward` reads."""

    gate_proj: ProjectSaved
    activation: str
    saved_activation: Any
    gate: np.ndarray
    up_proj: ProjectSaved
    up: np.ndarray
    down_proj: ProjectSaved


def swiglu_forward(
    x: np.ndarray,
    W_gate: np.ndarray,
    W_up: np.ndarray,
    W_down: np.ndarray,
    *,
    activation: str = "silu",
    station: Station = unobserved,
) -> tuple[np.ndarray, SwiGLUSaved]:
    """Widen twice, let one open the gates for the other, narrow. Article 8.1.

        y = (activation(x W_gate) ⊙ x W_up) W_down          d -> F -> d

    Args:
        x: [..., d].
        W_gate, W_up: [d, F].
        W_down: [F, d].
        activation: a name in `ops.activation.ACTIVATIONS`; with "silu" this is SwiGLU.
        station: shows `gate_proj`, `act_fn`, `up_proj` and their product, `gated` [..., F].

    Returns:
        y [..., d], and what backward reads.
    """
    forward, _ = ACTIVATIONS[activation]
    wide, saved_gate = project_forward(x, W_gate)  # [..., F]
    gate, saved_activation = forward(station("gate_proj", wide))
    gate = station("act_fn", gate)
    up, saved_up = project_forward(x, W_up)
    up = station("up_proj", up)
    y, saved_down = project_forward(station("gated", gate * up), W_down)
    return y, SwiGLUSaved(saved_gate, activation, saved_activation, gate, saved_up, up, saved_down)


def swiglu_backward(
    dy: np.ndarray, saved: SwiGLUSaved, station: Station = unobserved
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of x, W_gate, W_up and W_down.

    Of a product each factor gets the gradient times the other; x gets the sum of both its ways.

    Args:
        dy: [..., d].
    """
    _, backward = ACTIVATIONS[saved.activation]
    dmixed, dW_down = project_backward(dy, saved.down_proj)
    dmixed = station("gated", dmixed)
    dx_up, dW_up = project_backward(station("up_proj", dmixed * saved.gate), saved.up_proj)
    dwide = backward(station("act_fn", dmixed * saved.up), saved.saved_activation)
    dx_gate, dW_gate = project_backward(station("gate_proj", dwide), saved.gate_proj)
    return dx_gate + dx_up, dW_gate, dW_up, dW_down
