"""A block's second sublayer: one SwiGLU, or a mixture of experts (article 8.1, 8.3)."""

from __future__ import annotations

import numpy as np

from npgpt.layers.mixture import MixtureSaved, mixture_backward, mixture_forward
from npgpt.layers.swiglu import SwiGLUSaved, swiglu_backward, swiglu_forward
from npgpt.models.common import Params, Pass, put_those_of, those_of
from npgpt.models.llama.config import LlamaConfig, expert_names

# In the order of the layer's arguments; a model has all weights, and biases as it is made.
MLP = tuple(f"{part}_proj.{kind}" for kind in ("weight", "bias") for part in ("gate", "up", "down"))

MLPSaved = SwiGLUSaved | MixtureSaved


def mlp_forward(
    x: np.ndarray, params: Params, n: int, config: LlamaConfig, run: Pass
) -> tuple[np.ndarray, MLPSaved]:
    """What block n adds after its attention [..., T, d]; its stations are those of the layer."""
    mlp, activation = f"layers.{n}.mlp", config.hidden_act
    station = run.within(mlp)
    if not config.sparse[n]:
        matrices = those_of(params, mlp, MLP)
        return swiglu_forward(x, *matrices, activation=activation, station=station)
    router, names = expert_names(config, n)
    return mixture_forward(
        x,
        params[router],
        *([params[name] for name in of_all] for of_all in names),
        k=config.num_experts_per_tok,
        renormalise=config.renormalise,
        activation=activation,
        station=station,
    )


def mlp_backward(
    dy: np.ndarray, saved: MLPSaved, n: int, config: LlamaConfig, grads: Params, run: Pass
) -> np.ndarray:
    """Gradient of x [..., T, d]; puts those of the parameters into `grads`."""
    mlp = f"layers.{n}.mlp"
    if isinstance(saved, SwiGLUSaved):
        dx, *dmatrices = swiglu_backward(dy, saved, run.within(mlp))
        put_those_of(grads, mlp, MLP, dmatrices)
        return dx
    router, names = expert_names(config, n)
    dx, grads[router], *of_experts = mixture_backward(dy, saved, run.within(mlp))
    for of_all, dW in zip(names, of_experts, strict=True):
        grads |= zip(of_all, dW, strict=True)
    return dx


def neurons_of(saved: MLPSaved) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Gate, value and activation of all neurons in a pass [T, F], and the rows [F, d] they meet.

    Of one FFN the activation is gate times value. Experts stand side by side, number e F + j is
    neuron j of expert e; its activation is multiplied by the expert's weight, and all three are 0
    for a token that does not go there.
    """
    if isinstance(saved, SwiGLUSaved):
        return saved.gate, saved.up, saved.down_proj.x, saved.down_proj.W
    E, T = len(saved.experts), len(saved.weights)
    F, d = saved.experts[0].swiglu.down_proj.W.shape
    found = np.zeros((3, T, E, F), saved.weights.dtype)
    for e, (tokens, _, swiglu) in enumerate(saved.experts):
        weighted = saved.weights[tokens, e, None] * swiglu.down_proj.x
        found[:, tokens, e] = swiglu.gate, swiglu.up, weighted
    gate, value, active = found.reshape(3, T, E * F)
    rows = np.stack([expert.swiglu.down_proj.W for expert in saved.experts])
    return gate, value, active, rows.reshape(E * F, d)
