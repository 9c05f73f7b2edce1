"""The mixture of experts: many SwiGLUs stand in the place of one, each token goes to a few (8.3).

It is the FFN that is copied, not the attention: knowledge grows with the number of experts, the
work for a token with the number of those it goes to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from npgpt.layers.stations import Station, unobserved
from npgpt.layers.swiglu import SwiGLUSaved, swiglu_backward, swiglu_forward
from npgpt.ops import softmax
from npgpt.ops.project import Saved as ProjectSaved
from npgpt.ops.project import project_backward, project_forward
from npgpt.ops.router import (
    renormalise_backward,
    renormalise_forward,
    top_k_backward,
    top_k_forward,
)
from npgpt.ops.softmax import softmax_backward, softmax_forward

Experts = Iterable[np.ndarray]  # a matrix each


class RouterSaved(NamedTuple):
    """What `router_backward` reads."""

    gate: ProjectSaved
    softmax: softmax.Saved
    kept: np.ndarray  # bool [..., E]
    renormalise: tuple[np.ndarray, np.ndarray] | None
    balance: np.ndarray | None = None  # see `with_balance`

    @property
    def probs(self) -> np.ndarray:
        """What `npgpt.ops.load_balance` reads besides `kept`: [..., E] before the choice."""
        return self.softmax[0]


class ExpertSaved(NamedTuple):
    """One expert's work: n_e of all N tokens."""

    tokens: np.ndarray  # which: [n_e]
    answers: np.ndarray  # [n_e, d]
    swiglu: SwiGLUSaved


class MixtureSaved(NamedTuple):
    """What `mixture_backward` reads."""

    router: RouterSaved
    weights: np.ndarray  # [N, E]
    experts: list[ExpertSaved]


def router_forward(
    x: np.ndarray, W: np.ndarray, *, k: int, renormalise: bool, station: Station = unobserved
) -> tuple[np.ndarray, RouterSaved]:
    """How much each token wants to hear of each expert: k weights in each row, all others 0.

        weights = top_k(softmax(x W)),  divided by their sum if `renormalise`

    Args:
        x: [..., d].
        W: [d, E].
        k: how many experts a token goes to.
        renormalise: True as in Mixtral: the k weights sum to 1; a single one is always 1, and a
            router of k = 1 then learns nothing from it. False: what the softmax gave to the experts
            that were not chosen is lost.
        station: shows `gate`, the scores x W, and `weights` [..., E]; the gradient that arrives at
            the weights is 0 for experts that were not asked.

    Returns:
        weights [..., E], and what backward reads.
    """
    scores, gate = project_forward(x, W)  # [..., E]
    probs, saved_softmax = softmax_forward(station("gate", scores), axis=-1)
    weights, kept = top_k_forward(probs, k=k)
    total = None
    if renormalise:
        weights, total = renormalise_forward(weights)
    return station("weights", weights), RouterSaved(gate, saved_softmax, kept, total)


def router_backward(
    dweights: np.ndarray, saved: RouterSaved, station: Station = unobserved
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of x and W.

    Args:
        dweights: [..., E]; what it has for experts that are not chosen is not read.
    """
    dweights = station("weights", dweights)
    if saved.renormalise is not None:
        dweights = renormalise_backward(dweights, saved.renormalise)
    dprobs = top_k_backward(dweights, saved.kept)
    if saved.balance is not None:
        dprobs = dprobs + saved.balance
    return project_backward(station("gate", softmax_backward(dprobs, saved.softmax)), saved.gate)


def mixture_forward(
    x: np.ndarray,
    W_router: np.ndarray,
    W_gate: Experts,
    W_up: Experts,
    W_down: Experts,
    *,
    k: int,
    renormalise: bool,
    activation: str = "silu",
    station: Station = unobserved,
) -> tuple[np.ndarray, MixtureSaved]:
    """Send each token to its k experts, and add up what they say, each as loud as its weight. 8.3.

        y = Σ_e weights_e swiglu_e(x)               over the k experts that the router has chosen

    Args:
        x: [..., d].
        W_router: [d, E].
        W_gate, W_up, W_down: of each of E experts [d, F], [d, F], [F, d].
        k, renormalise: see `router_forward`.
        activation: of the experts, see `swiglu_forward`.
        station: shows `gate` and `weights`, see `router_forward`.

    Returns:
        y [..., d], and what backward reads.
    """
    weights, router = router_forward(x, W_router, k=k, renormalise=renormalise, station=station)
    E = weights.shape[-1]
    rows, weights = x.reshape(-1, x.shape[-1]), weights.reshape(-1, E)
    asked = router.kept.reshape(-1, E) | (weights != 0)  # others, too, if an observer says so
    y, experts = np.zeros_like(rows), []
    for e, matrices in enumerate(zip(W_gate, W_up, W_down, strict=True)):
        tokens = np.flatnonzero(asked[:, e])
        answers, swiglu = swiglu_forward(rows[tokens], *matrices, activation=activation)
        y[tokens] += weights[tokens, e, None] * answers
        experts.append(ExpertSaved(tokens, answers, swiglu))
    return y.reshape(x.shape), MixtureSaved(router, weights, experts)


def with_balance(saved: MixtureSaved, dprobs: np.ndarray) -> MixtureSaved:
    """For training with the load-balancing loss: backward adds its gradient of the probabilities.

    Args:
        dprobs: [..., E], see `npgpt.ops.load_balance`.
    """
    return saved._replace(router=saved.router._replace(balance=dprobs))


def mixture_backward(
    dy: np.ndarray, saved: MixtureSaved, station: Station = unobserved
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Gradients of x, W_router, W_gate, W_up and W_down, the last three a matrix for each expert.

    An expert hears of its own tokens only, in proportion to its weight; one without tokens gets
    zeros. A weight's gradient says how much the expert's answer helps:

        danswer_e = weights_e dy        dweights_e = dy · answer_e

    x gets the sum of all its ways, through the experts and through the router.

    Args:
        dy: [..., d].
    """
    drows, weights = dy.reshape(-1, dy.shape[-1]), saved.weights
    dx, dweights, dmatrices = np.zeros_like(drows), np.zeros_like(weights), []
    for e, (tokens, answers, swiglu) in enumerate(saved.experts):
        heard = drows[tokens]  # [n_e, d]
        dweights[tokens, e] = (heard * answers).sum(axis=-1)
        danswers = weights[tokens, e, None] * heard
        dx_e, *dW, _, _, _ = swiglu_backward(danswers, swiglu)  # there are no biases
        dx[tokens] += dx_e
        dmatrices.append(dW)
    dweights = dweights.reshape(saved.router.kept.shape)
    dx_router, dW_router = router_backward(dweights, saved.router, station)
    dW_gate, dW_up, dW_down = (list(of_all) for of_all in zip(*dmatrices, strict=True))
    return dx.reshape(dy.shape) + dx_router, dW_router, dW_gate, dW_up, dW_down
