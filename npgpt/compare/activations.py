"""The stations of a pass: every intermediate result that two implementations can compare.

    GPT-2             embed  h.N.attn.probs  h.N.attn  h.N.mlp  h.N  ln_f
    Llama             embed  layers.N.self_attn.probs  ….self_attn  ….mlp  layers.N  norm
    BERT              embed  encoder.layer.N.attention.self.probs  ….attention.output.dense
                      ….attention.output.LayerNorm  ….output.dense  encoder.layer.N  pooler
    DistilBERT        embed  transformer.layer.N.attention.probs  ….attention.out_lin
                      ….sa_layer_norm  ….ffn.lin2  transformer.layer.N
    encoder-decoder   encoder.embed  encoder.layers.N.self_attn.probs  ….self_attn
                      ….self_attn_layer_norm  ….fc2  encoder.layers.N  and so on in decoder.…,
                      with ….encoder_attn.probs  ….encoder_attn  ….encoder_attn_layer_norm
    all of them       ids (and target_ids) in front; logits, loss, grad.<station>,
                      grad.<parameter> at the end

Each has the name of the Hugging Face module whose output it is. Further ones are optional: the
norms (`ln_1`, `ln_2`, `input_layernorm`, `post_attention_layernorm`); within attention `q`, `k`,
`v`, `scores` (scaled and masked), `context` (the heads side by side); within the MLP `c_fc` and
`act`, `gate_proj`, `act_fn`, `up_proj` and `gated` (their product), `intermediate.dense` and
`intermediate`, `lin1` and `activation`, `fc1` and `activation_fn`; of a mixture of experts `gate`,
the router's scores [T, E], and `weights`, 0 for experts that are not chosen; and the gradient that
arrives at a station.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
INNER = {  # last part of the names of optional stations
    *("ln_1", "ln_2", "input_layernorm", "post_attention_layernorm"),
    *("q", "k", "v", "scores", "context"),
    *("c_fc", "act", "gate_proj", "act_fn", "up_proj", "gated"),
    *("intermediate", "lin1", "activation", "fc1", "activation_fn"),
    *("gate", "weights"),
}
INPUTS = ("ids", "target_ids")  # what the stations are computed from

Stations = dict[str, np.ndarray]
# Another array in the place of one, from its name and from what the pass went on with before it.
Edit = Callable[[str, np.ndarray, Stations], np.ndarray]


def is_optional(name: str, params: Iterable[str]) -> bool:
    """Whether a dump without this array is complete all the same."""
    if name.startswith(GRAD):
        return name.removeprefix(GRAD) not in params
    *_, before, last = ("", *name.split("."))
    return last in INNER or before == "intermediate"


def collect_stations(
    model: Any,
    ids: np.ndarray,
    target_ids: np.ndarray | None = None,
    *,
    gradients: bool,
    given: Mapping[str, np.ndarray] | None = None,
    targets: np.ndarray | None = None,
    edit: Edit | None = None,
) -> Stations:
    """Everything that a pass over one text computes, in the order of the computation.

    Args:
        model: a GPT2, Llama, BERT or Transformer.
        ids: [T] integers; the source [S] of a Transformer.
        target_ids: [T] integers, the target of a Transformer; its decoder reads it shifted right.
        gradients: True adds `loss` [], `grad.<station>` for every station that the loss depends
            on, from the last to the first, and `grad.<parameter>` for every parameter, in the
            parameter's shape. The loss is the mean of -log p of the targets, see
            `inputs_and_targets`.
        given: arrays with which the pass goes on at these stations, instead of its own. So each
            array returned is computed from those that are given; loss and gradients, too.
        targets: others than those of `inputs_and_targets`.
        edit: what is wrong with the pass. It makes another array of every one; one that is given
            takes its place all the same.

    Returns:
        `ids` (and `target_ids`); in the parameters' dtype the stations of the table above:
        attention weights (`….probs`) and scores [H, T, T], q [H, T, d_h], k and v of a Llama
        [H_kv, T, d_h], logits [T, V], those within an MLP [T, F], all others [T, d], where T is S
        in the encoder and for keys and values of cross-attention; `pooler` [d].

    Raises:
        ValueError: what the model's `forward` refuses; targets without a logit; gradients where
            there is no loss.
    """
    stations: Stations = {"ids": ids} if target_ids is None else {"ids": ids, INPUTS[1]: target_ids}
    inputs, usual = inputs_and_targets(model, ids, target_ids)
    targets = usual if targets is None else targets
    if gradients:
        _check_loss(model, ids)
    went: Stations = {}

    def keep(name: str, array: np.ndarray) -> np.ndarray:
        array = stations[name] = array if edit is None else edit(name, array, went)
        other = None if given is None else given.get(name)
        if other is not None:
            unseen = where_unseen(name, stations)
            array = other if unseen is None else np.where(unseen, array, other)
        if edit is not None:
            went[name] = array
        return array

    out = model.forward(*inputs, observe=keep)
    if out.logits is not None:
        check_targets(out.logits.shape, targets, IGNORE_INDEX)
    if gradients:
        loss, saved_loss = cross_entropy_forward(out.logits, targets)
        keep("loss", np.asarray(loss))
        dlogits = cross_entropy_backward(1.0, saved_loss)
        grads = model.backward(dlogits, out.saved, observe=lambda n, dx: keep(GRAD + n, dx))
        for name, grad in grads.items():
            stations[GRAD + name] = grad if edit is None else edit(GRAD + name, grad, went)
    return stations


def where_unseen(name: str, stations: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Where a mask forbids to look, so that an implementation may have anything: [H, T, S].

    That concerns scores, and the gradients of scores and weights; None for all other stations.
    """
    attention, _, last = name.removeprefix(GRAD).rpartition(".")
    if last == "scores" or (last == "probs" and name.startswith(GRAD)):
        unseen: np.ndarray = np.isneginf(stations[f"{attention}.scores"])
        return unseen
    return None


def seen(name: str, array: np.ndarray, stations: Mapping[str, np.ndarray]) -> np.ndarray:
    """The array with 0 where nobody may look."""
    unseen = where_unseen(name, stations)
    return array if unseen is None else np.where(unseen, array.dtype.type(0), array)


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


def collect_in_other_precision(
    model: Any, ids: np.ndarray, target_ids: np.ndarray | None = None, **options: Any
) -> Stations:
    """What `collect_stations` returns, in float32 if the model is in float64, or the other way
    round."""
    dtype = next(iter(model.params.values())).dtype
    other = np.float64 if dtype == np.float32 else np.float32
    with np.errstate(all="ignore"):
        params = {name: param.astype(other) for name, param in model.params.items()}
        return collect_stations(type(model)(model.config, params), ids, target_ids, **options)


def measure_rounding(
    moved: Mapping[str, np.ndarray], stations: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """How much float32 rounding moves each station: ‖float32 pass - float64 pass‖.

    Args:
        moved: what `collect_in_other_precision` returns.

    Returns:
        Station -> norm; 0 where it is not finite, as when the model overflows float32.
    """
    with np.errstate(all="ignore"):
        norms = {
            name: float(np.linalg.norm(seen(name, moved[name] - array, stations)))
            for name, array in stations.items()
        }
    return {name: norm if np.isfinite(norm) else 0.0 for name, norm in norms.items()}


def _check_loss(model: Any, ids: np.ndarray) -> None:
    """Raise ValueError where there is no target, so that there is no loss."""
    if isinstance(model, BERT):
        if not model.has_mlm_head:
            raise ValueError(
                f"this BERT has no MLM head ({model.config.family.head}…), so there is no loss and "
                "no gradient of it; leave out --gradients."
            )
    elif not isinstance(model, Transformer) and len(ids) < 2:
        raise ValueError(
            "gradients need at least two tokens, because the loss is that of the next one."
        )
