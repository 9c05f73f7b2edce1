"""The stations of a pass: every intermediate result that two implementations can lay side by side.

    ids  embed  h.N.attn.probs  h.N.attn  h.N.mlp  h.N  ln_f  logits      the forward pass
    loss  grad.<parameter>                                                and the backward pass

Of a Llama they are called as its modules are: layers.N.self_attn for h.N.attn, norm for ln_f.
Collects them from a model, and measures how much of each is rounding. Leaves out comparing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npgpt.ops.cross_entropy import IGNORE_INDEX, cross_entropy_backward, cross_entropy_forward

GRAD = "grad."


def collect_stations(model: Any, ids: np.ndarray, *, gradients: bool) -> dict[str, np.ndarray]:
    """Everything that a pass over one text computes, in the order in which it does.

    Args:
        model: a GPT2 or a Llama.
        ids: [T] integers.
        gradients: True adds `loss` [] and a `grad.<parameter>` for every parameter, in the
            parameter's shape. The loss is the mean over the T - 1 next tokens that the text
            contains, see `next_token_targets`.

    Returns:
        `ids` [T]; in the parameters' dtype `embed`, `h.N.attn`, `h.N.mlp`, `h.N` and `ln_f`
        [T, d], `h.N.attn.probs` [H, T, T], `logits` [T, V].

    Raises:
        ValueError: what the model's `forward` refuses; gradients of fewer than two tokens.
    """
    if gradients and len(ids) < 2:
        raise ValueError(
            "gradients need at least two tokens, for the loss is that of the next one."
        )
    stations: dict[str, np.ndarray] = {"ids": ids}
    logits, saved = model.forward(ids, observe=stations.__setitem__)
    if gradients:
        loss, saved_loss = cross_entropy_forward(logits, next_token_targets(ids))
        grads = model.backward(cross_entropy_backward(1.0, saved_loss), saved)
        stations["loss"] = np.asarray(loss)
        stations.update((GRAD + name, grad) for name, grad in grads.items())
    return stations


def next_token_targets(ids: np.ndarray) -> np.ndarray:
    """ids[t + 1] for position t; nothing follows the last, so its target is ignored: [T]."""
    return np.append(ids[1:], IGNORE_INDEX)


def measure_rounding(
    model: Any, stations: Mapping[str, np.ndarray], *, gradients: bool
) -> dict[str, float]:
    """How much float32 rounding moves each station: ‖float32 pass - float64 pass‖.

    The pass is made once more in the precision that `stations` are not in. Needs the parameters a
    second time in memory.

    Returns:
        Station -> norm; 0 where it is not finite, as when the model overflows float32.
    """
    other = np.float64 if stations["logits"].dtype == np.float32 else np.float32
    with np.errstate(all="ignore"):
        params = {name: param.astype(other) for name, param in model.params.items()}
        twin = type(model)(model.config, params)
        moved = collect_stations(twin, stations["ids"], gradients=gradients)
        norms = {name: float(np.linalg.norm(moved[name] - stations[name])) for name in moved}
    return {name: norm if np.isfinite(norm) else 0.0 for name, norm in norms.items()}


def what_makes(station: str) -> str:
    """Where to look for the fault when `station` is the first that is wrong."""
    for ending, parts in (
        ("embed", "wte[id] + wpe[position]; embed_tokens[id] alone in a Llama"),
        (
            ".self_attn.probs",
            "input_layernorm, q_proj, k_proj, the cut into heads, which of them share keys, rotary "
            "angles and which coordinates are a pair, the scale 1/√d_h, the causal mask, softmax",
        ),
        (".self_attn", "v_proj, the weighted sum, joining the heads, o_proj"),
        (
            ".attn.probs",
            "ln_1, the Q and K thirds of c_attn, the cut into heads, the scale 1/√d_h, the causal "
            "mask, softmax",
        ),
        (".attn", "the V third of c_attn, the weighted sum, joining the heads, attn.c_proj"),
        (
            ".mlp",
            "ln_2, mlp.c_fc, the activation function, mlp.c_proj; in a Llama "
            "post_attention_layernorm, gate_proj with the activation, times up_proj, down_proj",
        ),
        ("ln_f", "ln_f.weight, ln_f.bias, layer_norm_epsilon"),
        ("norm", "norm.weight, rms_norm_eps; no mean is subtracted"),
        ("logits", "lm_head, which is the token table transposed where the two are tied"),
        ("loss", "log-softmax, and targets shifted by one: ids[t + 1] for position t"),
    ):
        if station.endswith(ending):
            return parts
    return "the residual additions: x + attn, then x + mlp"
