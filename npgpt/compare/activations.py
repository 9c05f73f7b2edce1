"""The stations of a pass: every intermediate result that two implementations can lay side by side.

    GPT-2             embed  h.N.attn.probs  h.N.attn  h.N.mlp  h.N  ln_f
    Llama             embed  layers.N.self_attn.probs  ….self_attn  ….mlp  layers.N  norm
    BERT              embed  encoder.layer.N.attention.self.probs  ….attention.output.dense
                      ….attention.output.LayerNorm  ….output.dense  encoder.layer.N  pooler
    encoder-decoder   encoder.embed  encoder.layers.N.self_attn.probs  ….self_attn
                      ….self_attn_layer_norm  ….fc2  encoder.layers.N  and so on in decoder.…,
                      with ….encoder_attn.probs  ….encoder_attn  ….encoder_attn_layer_norm
    all of them       ids (and target_ids) in front; logits, loss, grad.<parameter> behind

Each is called as Hugging Face's module whose output it is. Collects them from a model, and measures
how much of each is rounding. Leaves out comparing, and what may be wrong (`station_parts.py`).
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
INPUTS = ("ids", "target_ids")  # what the stations are computed from


def collect_stations(
    model: Any, ids: np.ndarray, target_ids: np.ndarray | None = None, *, gradients: bool
) -> dict[str, np.ndarray]:
    """Everything that a pass over one text computes, in the order in which it does.

    Args:
        model: a GPT2, Llama, BERT or Transformer.
        ids: [T] integers; the source [S] of a Transformer.
        target_ids: [T] integers, what a Transformer is to write; its decoder reads them one behind.
        gradients: True adds `loss` [] and a `grad.<parameter>` for every parameter, in the
            parameter's shape. The loss is the mean of -log p of what is asked for at each position,
            see `read_and_asked`.

    Returns:
        `ids` (and `target_ids`); in the parameters' dtype the stations of the table above: tables
        of weights (`….probs`) [H, T, T], logits [T, V], all others [T, d], where T is S in the
        encoder and for the keys of cross-attention; `pooler` [d].

    Raises:
        ValueError: what the model's `forward` refuses; targets without a logit; gradients where
            there is no loss.
    """
    stations = {"ids": ids} if target_ids is None else {"ids": ids, "target_ids": target_ids}
    read, asked = read_and_asked(model, ids, target_ids)
    if gradients:
        _check_loss(model, ids)
    out = model.forward(*read, observe=stations.__setitem__)
    if out.logits is not None:
        check_targets(out.logits.shape, asked, IGNORE_INDEX)
    if gradients:
        loss, saved_loss = cross_entropy_forward(out.logits, asked)
        grads = model.backward(cross_entropy_backward(1.0, saved_loss), out.saved)
        stations["loss"] = np.asarray(loss)
        stations.update((GRAD + name, grad) for name, grad in grads.items())
    return stations


def read_and_asked(
    model: Any, ids: np.ndarray, target_ids: np.ndarray | None
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """What `forward` reads, and the token that the loss asks for at each position of the logits.

    GPT-2 and Llama are asked for the next token, BERT for the token that stands there itself, an
    encoder-decoder for that of the target, of which its decoder has read those before.
    """
    if isinstance(model, Transformer):
        if target_ids is None:
            raise ValueError("an encoder-decoder needs target_ids, for its decoder reads them.")
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

    The pass is made once more in the precision that `stations` are not in. Needs the parameters a
    second time in memory.

    Returns:
        Station -> norm; 0 where it is not finite, as when the model overflows float32.
    """
    dtype = next(iter(model.params.values())).dtype
    other = np.float64 if dtype == np.float32 else np.float32
    with np.errstate(all="ignore"):
        params = {name: param.astype(other) for name, param in model.params.items()}
        twin = type(model)(model.config, params)
        given = [stations[name] for name in INPUTS if name in stations]
        moved = collect_stations(twin, *given, gradients=gradients)
        norms = {name: float(np.linalg.norm(moved[name] - stations[name])) for name in moved}
    return {name: norm if np.isfinite(norm) else 0.0 for name, norm in norms.items()}


def _check_loss(model: Any, ids: np.ndarray) -> None:
    """Raise ValueError where nothing is asked for, so that there is no loss."""
    if isinstance(model, BERT):
        if "cls.predictions.bias" not in model.params:
            raise ValueError(
                "this BERT has no MLM head (cls.predictions.…), so there is no loss and no "
                "gradient of it; leave out --gradients."
            )
    elif not isinstance(model, Transformer) and len(ids) < 2:
        raise ValueError(
            "gradients need at least two tokens, for the loss is that of the next one."
        )
