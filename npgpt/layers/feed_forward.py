"""The feed-forward network: each token thinks for itself (article chapter 8)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npgpt.layers.stations import Station, unobserved
from npgpt.ops.activation import ACTIVATIONS
from npgpt.ops.linear import Saved as LinearSaved
from npgpt.ops.linear import linear_backward, linear_forward


class FeedForwardSaved(NamedTuple):
    """What `feed_forward_backward` reads."""

    c_fc: LinearSaved
    activation: str
    saved_activation: Any
    c_proj: LinearSaved


def feed_forward_forward(
    x: np.ndarray,
    c_fc_weight: np.ndarray,
    c_fc_bias: np.ndarray,
    c_proj_weight: np.ndarray,
    c_proj_bias: np.ndarray,
    *,
    activation: str,
    station: Station = unobserved,
) -> tuple[np.ndarray, FeedForwardSaved]:
    """Widen, activate, narrow. Article 8.1.

        y = activation(x W_1 + b_1) W_2 + b_2           d -> F -> F -> d

    Read as keys and values (8.3): column j of W_1 asks a question, row j of W_2 is the answer.

    Args:
        x: [..., d].
        c_fc_weight, c_fc_bias: [d, F], [F].
        c_proj_weight, c_proj_bias: [F, d], [d].
        activation: a name in `ops.activation.ACTIVATIONS`; GPT-2's is "gelu_new".
        station: shows `c_fc`, before the activation, and `act`, behind it [..., F].

    Returns:
        y [..., d], and what backward reads.
    """
    forward, _ = ACTIVATIONS[activation]
    wide, saved_c_fc = linear_forward(x, c_fc_weight, c_fc_bias)  # [..., F]
    activated, saved_activation = forward(station("c_fc", wide))
    activated = station("act", activated)
    y, saved_c_proj = linear_forward(activated, c_proj_weight, c_proj_bias)  # [..., d]
    return y, FeedForwardSaved(saved_c_fc, activation, saved_activation, saved_c_proj)


def feed_forward_backward(
    dy: np.ndarray, saved: FeedForwardSaved, station: Station = unobserved
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of x, c_fc (weight, bias) and c_proj (weight, bias).

    Args:
        dy: [..., d].

    Returns:
        dx [..., d], then each parameter's gradient in the parameter's shape.
    """
    _, backward = ACTIVATIONS[saved.activation]
    dactivated, dc_proj_weight, dc_proj_bias = linear_backward(dy, saved.c_proj)
    dwide = backward(station("act", dactivated), saved.saved_activation)
    dwide = station("c_fc", dwide)
    dx, dc_fc_weight, dc_fc_bias = linear_backward(dwide, saved.c_fc)
    return dx, dc_fc_weight, dc_fc_bias, dc_proj_weight, dc_proj_bias
