"""The stations of a pass: every intermediate result that two implementations can compare.

    GPT-2             embed  h.N.attn.probs  h.N.attn  h.N.mlp  h.N  ln_f
    Llama             embed  layers.N.self_attn.probs  ….self_attn  ….mlp  layers.N  norm
    BERT              embed  encoder.layer.N.attention.self.probs  ….attention.output.dense
                      ….attention.output.LayerNorm  ….output.dense  encoder.layer.N  pooler
    encoder-decoder   encoder.embed  encoder.layers.N.self_attn.probs  ….self_attn
                      ….self_attn_layer_norm  ….fc2  encoder.layers.N  and so on in decoder.…,
                      with ….encoder_attn.probs  ….encoder_attn  ….encoder_attn_layer_norm
    all of them       ids (and target_ids) in front; logits, loss, grad.<parameter> at the end

Each has the name of the Hugging Face module whose output it is. A pass has further ones, which it
shows to `observe` alone: the norms (`ln_1`, `ln_2`, `input_layernorm`, `post_attention_layernorm`);
within attention `q`, `k`, `v`, `scores` (scaled and masked), `context` (the heads side by side);
within the MLP `c_fc` and `act`, `gate_proj`, `act_fn`, `up_proj` and `gated` (their product),
`intermediate.dense` and `intermediate`, `fc1` and `activation_fn`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npgpt.models.bert.model import BERT
from npgpt.models.transformer.model import Transformer
from npgpt.ops.cross_entropy import (
    IGNORE_INDEX,
    check_targets,
    cross_entropy_backward,
    cross_entropy_forward,
)

GRAD = "grad."
INNER = {  # last part of the names of stations that are not compared
    *("ln_1", "ln_2", "input_layernorm", "post_attention_layernorm"),
    *("q", "k", "v", "scores", "context"),
    *("c_fc", "act", "gate_proj", "act_fn", "up_proj", "gated"),
    *("intermediate", "fc1", "activation_fn"),
}
INPUTS = ("ids", "target_ids")  # what the stations are computed from


def collect_stations(
    model: Any, ids: np.ndarray, target_ids: np.ndarray | None = None, *, gradients: bool
) -> dict[str, np.ndarray]:
    """Everything that a pass over one text computes, in the order of the computation.

    Args:
        model: a GPT2, Llama, BERT or Transformer.
        ids: [T] integers; the source [S] of a Transformer.
        target_ids: [T] integers, the target of a Transformer; its decoder reads it shifted right.
        gradients: True adds `loss` [] and a `grad.<parameter>` for every parameter, in the
            parameter's shape. The loss is the mean of -log p of the targets, see
            `inputs_and_targets`.

    Returns:
        `ids` (and `target_ids`); in the parameters' dtype the stations of the table above:
        attention weights (`….probs`) [H, T, T], logits [T, V], all others [T, d], where T is S in
        the encoder and for the keys of cross-attention; `pooler` [d].

    Raises:
        ValueError: what the model's `forward` refuses; targets without a logit; gradients where
            there is no loss.
    """
    stations = {"ids": ids} if target_ids is None else {"ids": ids, "target_ids": target_ids}
    inputs, targets = inputs_and_targets(model, ids, target_ids)
    if gradients:
        _check_loss(model, ids)

    def keep(name: str, array: np.ndarray) -> None:
        *_, before, last = ("", *name.split("."))
        if not INNER & {last} and before != "intermediate":
            stations[name] = array

    out = model.forward(*inputs, observe=keep)
    if out.logits is not None:
        check_targets(out.logits.shape, targets, IGNORE_INDEX)
    if gradients:
        loss, saved_loss = cross_entropy_forward(out.logits, targets)
        grads = model.backward(cross_entropy_backward(1.0, saved_loss), out.saved)
        stations["loss"] = np.asarray(loss)
        stations.update((GRAD + name, grad) for name, grad in grads.items())
    return stations


def inputs_and_targets(
    model: Any, ids: np.ndarray, target_ids: np.ndarray | None
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """The arguments of `forward`, and the target of the loss at each position of the logits [T].

    The target is the next token for GPT-2 and Llama, the token itself for BERT. An encoder-decoder
    predicts each token of `target_ids` from the source and from the tokens before it.
    """
    if isinstance(model, Transformer):
        if target_ids is None:
            raise ValueError("an encoder-decoder needs target_ids, which its decoder reads.")
        return (ids, model.shifted_right(target_ids)), target_ids
    if isinstance(model, BERT):
        return (ids,), ids
    return (ids,), next_token_targets(ids)


def next_token_targets(ids: np.ndarray) -> np.ndarray:
    """ids[t + 1] for position t; nothing follows the last, so its target is ignored: [T]."""
    return np.append(ids[1:], IGNORE_INDEX)


def measure_rounding(
    model: Any, stations: Mapping[str, np.ndarray], *, gradients: bool
) -> dict[str, float]:
    """How much float32 rounding moves each station: ‖float32 pass - float64 pass‖.

    Runs the pass once more in the precision that `stations` are not in, with a second copy of the
    parameters in memory.

    Returns:
        Station -> norm; 0 where it is not finite, as when the model overflows float32.
    """
    dtype = next(iter(model.params.values())).dtype
    other = np.float64 if dtype == np.float32 else np.float32
    with np.errstate(all="ignore"):
        params = {name: param.astype(other) for name, param in model.params.items()}
        twin = type(model)(model.config, params)
        inputs = [stations[name] for name in INPUTS if name in stations]
        moved = collect_stations(twin, *inputs, gradients=gradients)
        norms = {name: float(np.linalg.norm(moved[name] - stations[name])) for name in moved}
    return {name: norm if np.isfinite(norm) else 0.0 for name, norm in norms.items()}


def _check_loss(model: Any, ids: np.ndarray) -> None:
    """Raise ValueError where there is no target, so that there is no loss."""
    if isinstance(model, BERT):
        if "cls.predictions.bias" not in model.params:
            raise ValueError(
                "this BERT has no MLM head (cls.predictions.…), so there is no loss and no "
                "gradient of it; leave out --gradients."
            )
    elif not isinstance(model, Transformer) and len(ids) < 2:
        raise ValueError(
            "gradients need at least two tokens, because the loss is that of the next one."
        )
