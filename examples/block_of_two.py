"""A block of width 2, its loss, and its weights: small integers, as in the toy model of 7.3.

With two numbers a LayerNorm whose ε is 0 leaves only which is larger, ±1, and no gradient comes
through; ε = 3 keeps it alive, and the first tokens become (0.5, -0.5) and (-0.5, 0.5).
"""

from __future__ import annotations

import math

import numpy as np
from nudged import Column, side_by_side

from npgpt.models.common import Params, Pass
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.gpt2.model import block_backward, block_forward
from npgpt.ops.activation import gelu_tanh_forward
from npgpt.ops.cross_entropy import cross_entropy_forward
from npgpt.ops.layer_norm import layer_norm_forward
from npgpt.ops.linear import linear_forward
from npgpt.ops.lm_head import lm_head_forward
from npgpt.ops.mask import causal_mask, mask_forward
from npgpt.ops.scores import scale_forward, scores_forward
from npgpt.ops.softmax import softmax_forward
from npgpt.ops.weighted_sum import weighted_sum_forward

NAMES, EPS, ROOT_D, MASK = ["t0", "t1"], 3.0, math.sqrt(2), causal_mask(2, 2)
TABLE, TARGETS = np.array([[1.0, 0], [0, 1], [1, 1]]), np.array([1, 2])
X = np.array([[2.0, 0], [0, 2]])
MATRICES = {
    "W_Q": np.array([[2.0, 0], [0, 2]]),
    "W_K": np.array([[2.0, 0], [2, -2]]),
    "W_V": np.array([[2.0, 0], [0, 4]]),
    "W_O": np.array([[1.0, 0], [1, 1]]),
    "W_1": np.array([[2.0, 0, 1], [0, 2, 0]]),
    "W_2": np.array([[1.0, 0], [0, 1], [-1, 1]]),
}
WEIGHTS = {
    **MATRICES,
    **{f"b_{name[2:]}": np.zeros(W.shape[1]) for name, W in MATRICES.items()},
    **{f"{name}_{n}": np.full(2, value) for n in "12" for name, value in (("γ", 1.0), ("β", 0.0))},
}


def forward(**given: np.ndarray) -> dict[str, np.ndarray]:
    """Every intermediate result by name, and the loss "L".

    `given` takes the place of the block's own weights, or of what the steps before would have made.
    """
    at = {"x": X, **WEIGHTS, **given}

    def linear(name: str, of: str, end: str) -> None:
        at.setdefault(name, linear_forward(at[of], at[f"W_{end}"], at[f"b_{end}"])[0])

    def norm(name: str, of: str, end: str) -> None:
        weights = at[f"γ_{end}"], at[f"β_{end}"]
        at.setdefault(name, layer_norm_forward(at[of], *weights, eps=EPS)[0])

    norm("n_1", "x", "1")
    for name in ("Q", "K", "V"):
        linear(name, "n_1", name)
    at.setdefault("S", scores_forward(at["Q"], at["K"])[0])
    scaled, _ = scale_forward(at["S"], divisor=ROOT_D)
    at.setdefault("P", softmax_forward(mask_forward(scaled, MASK)[0], axis=-1)[0])
    at.setdefault("context", weighted_sum_forward(at["P"], at["V"])[0])
    linear("attn", "context", "O")
    at.setdefault("h", at["x"] + at["attn"])
    norm("n_2", "h", "2")
    linear("wide", "n_2", "1")
    at.setdefault("bent", gelu_tanh_forward(at["wide"])[0])
    linear("mlp", "bent", "2")
    at.setdefault("y", at["h"] + at["mlp"])
    at.setdefault("logits", lm_head_forward(at["y"], TABLE)[0])
    at["L"] = cross_entropy_forward(at["logits"], TARGETS)[0]
    return at


def by_npgpt(dy: np.ndarray) -> tuple[np.ndarray, np.ndarray, Params]:
    """The same block as npgpt's GPT-2 runs it: y, dx, and the gradients of its parameters."""
    config = GPT2Config(
        vocab_size=3,
        n_embd=2,
        n_head=1,
        n_layer=1,
        n_inner=3,
        layer_norm_epsilon=EPS,
        resid_pdrop=0,
        attn_pdrop=0,
    )
    params = {f"h.0.{name}": array for name, array in named_as_gpt2(WEIGHTS).items()}
    run = Pass()
    y, saved = block_forward(X, params, 0, config, MASK, run)
    grads: Params = {}
    dx = block_backward(dy, saved, 0, grads, run)
    return y, dx, {name.removeprefix("h.0."): grad for name, grad in grads.items()}


def named_as_gpt2(own: dict[str, np.ndarray]) -> Params:
    """The weights under the names of a GPT-2 checkpoint; c_attn is W_Q, W_K and W_V in a row."""
    named = {}
    for kind, letter, norm in (("weight", "W", "γ"), ("bias", "b", "β")):
        named |= {f"ln_{n}.{kind}": own[f"{norm}_{n}"] for n in "12"}
        qkv = [own[f"{letter}_{part}"] for part in "QKV"]
        named[f"attn.c_attn.{kind}"] = np.concatenate(qkv, axis=-1)
        parts = ("attn.c_proj", "O"), ("mlp.c_fc", "1"), ("mlp.c_proj", "2")
        named |= {f"{part}.{kind}": own[f"{letter}_{end}"] for part, end in parts}
    return named


def print_forward(at: dict[str, np.ndarray]) -> None:
    """The weights, and what each step makes of x."""
    steps = {
        "x": "x",
        "n_1": "n_1 = ln_1(x)",
        "Q": "Q",
        "K": "K",
        "V": "V",
        "S": "S = Q Kᵀ",
        "P": "P",
        "context": "context = P V",
        "attn": "attn = context W_O",
        "h": "h = x + attn",
        "n_2": "n_2 = ln_2(h)",
        "wide": "wide = n_2 W_1",
        "bent": "bent = GELU",
        "mlp": "mlp = bent W_2",
        "y": "y = h + mlp",
    }
    columns = [Column(title, at[name]) for name, title in steps.items()]
    side_by_side(*(Column(name, W) for name, W in MATRICES.items()))
    for part in (columns[:5], columns[5:10], columns[10:13], columns[13:]):
        side_by_side(*part, rows=NAMES)
