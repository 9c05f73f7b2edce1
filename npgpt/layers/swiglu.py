"""The gated feed-forward network (SwiGLU): one projection decides what of another passes (8.1)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npgpt.layers.projection import ProjectionSaved, projection_backward, projection_forward
from npgpt.layers.stations import Station, unobserved
from npgpt.ops.activation import ACTIVATIONS

Maybe = np.ndarray | None
# of x, W_gate, W_up, W_down; of b_gate, b_up, b_down
Gradients = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Maybe, Maybe, Maybe]


class SwiGLUSaved(NamedTuple):
    """What `swiglu_backward` reads."""

    gate_proj: ProjectionSaved
    activation: str
    saved_activation: Any
    gate: np.ndarray
    up_proj: ProjectionSaved
    up: np.ndarray
    down_proj: ProjectionSaved


def swiglu_forward(
    x: np.ndarray,
    W_gate: np.ndarray,
    W_up: np.ndarray,
    W_down: np.ndarray,
    b_gate: Maybe = None,
    b_up: Maybe = None,
    b_down: Maybe = None,
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
        b_gate, b_up, b_down: biases of the three products, [F], [F], [d], or None.
        activation: a name in `ops.activation.ACTIVATIONS`; with "silu" this is SwiGLU.
        station: shows `gate_proj`, `act_fn`, `up_proj` and their product, `gated` [..., F].

    Returns:
        y [..., d], and what backward reads.
    """
    forward, _ = ACTIVATIONS[activation]
    wide, saved_gate = projection_forward(x, W_gate, b_gate)  # [..., F]
    gate, saved_activation = forward(station("gate_proj", wide))
    gate = station("act_fn", gate)
    up, saved_up = projection_forward(x, W_up, b_up)
    up = station("up_proj", up)
    y, saved_down = projection_forward(station("gated", gate * up), W_down, b_down)
    return y, SwiGLUSaved(saved_gate, activation, saved_activation, gate, saved_up, up, saved_down)


def swiglu_backward(dy: np.ndarray, saved: SwiGLUSaved, station: Station = unobserved) -> Gradients:
    """Gradients of x and of the parameters in forward's order, None for those not there.

    Of a product each factor gets the gradient times the other; x gets the sum of both its ways.

    Args:
        dy: [..., d].
    """
    _, backward = ACTIVATIONS[saved.activation]
    dmixed, dW_down, db_down = projection_backward(dy, saved.down_proj)
    dmixed = station("gated", dmixed)
    dup = station("up_proj", dmixed * saved.gate)
    dx_up, dW_up, db_up = projection_backward(dup, saved.up_proj)
    dwide = backward(station("act_fn", dmixed * saved.up), saved.saved_activation)
    dwide = station("gate_proj", dwide)
    dx_gate, dW_gate, db_gate = projection_backward(dwide, saved.gate_proj)
    return dx_gate + dx_up, dW_gate, dW_up, dW_down, db_gate, db_up, db_down
