"""The cases by which ONNX tests its operators, through npgpt's operations.

The package `onnx` makes inputs and outputs; its authors know nothing of npgpt. A case in half
precision, or with a setting that npgpt does not have (a soft cap, a mask of numbers, weighted
classes), does not count. How many must count is written down.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

from npgpt.decoding.kv_cache import KVCache
from npgpt.layers.attention import attend_forward, attention_weights
from npgpt.ops.activation import ACTIVATIONS
from npgpt.ops.cross_entropy import cross_entropy_forward
from npgpt.ops.dropout import dropout_forward
from npgpt.ops.heads import merge_heads_forward, split_heads_forward
from npgpt.ops.layer_norm import layer_norm_forward
from npgpt.ops.linear import linear_forward
from npgpt.ops.lookup import lookup_forward
from npgpt.ops.project import project_forward
from npgpt.ops.rms_norm import rms_norm_forward
from npgpt.ops.rope import rope_forward
from npgpt.ops.scores import scale_forward, scores_forward
from npgpt.ops.shared_heads import (
    group_queries_forward,
    share_heads_forward,
    ungroup_queries_forward,
)
from npgpt.ops.softmax import log_softmax, softmax_forward
from npgpt.ops.weighted_sum import weighted_sum_forward
from tests.gradcheck import check_close

Arrays = dict[str, np.ndarray]
Found = dict[str, Any] | None  # outputs under their names in ONNX; None: npgpt does not offer this


def attention(
    x: Arrays,
    *,
    flash: bool = False,
    scale: float | None = None,
    q_num_heads: int | None = None,
    kv_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    softcap: float = 0.0,
    softmax_precision: int = 1,
    **seen: int,
) -> Found:
    """Grouped queries, keys and values behind those of a KV cache where there are any."""
    q, k, v = (x[name] for name in "QKV")
    if q_num_heads is not None:
        q, _ = split_heads_forward(q, n_head=q_num_heads)
        k, v = (split_heads_forward(part, n_head=kv_num_heads)[0] for part in (k, v))
    (B, H, T, d_h), H_kv, past = q.shape, k.shape[1], np.shape(x.get("past_key", [[[]]]))[2]
    mask = attention_mask(x, T, past + k.shape[2], past, **seen)
    if mask is None or softcap:
        return None
    if past:
        kv = KVCache(1, (B, H_kv, past + k.shape[2], d_h), k.dtype)
        kv.extend(0, x["past_key"], x["past_value"])
        kv.advance(past)
        k, v = kv.extend(0, k, v)
    found: dict[str, Any] = {"present_key": k, "present_value": v}
    mask = np.broadcast_to(mask, (len(mask), H, *mask.shape[2:]))
    q, mask = (group_queries_forward(part, n_kv_head=H_kv)[0] for part in (q, mask))
    k, v = (share_heads_forward(part, n_group=H // H_kv)[0] for part in (k, v))
    divisor = 1 / scale if scale else math.sqrt(d_h)
    context, saved = attend_forward(q, k, v, divisor=divisor, mask=mask, flash=flash)
    context, _ = ungroup_queries_forward(context)
    found["Y"] = context if q_num_heads is None else merge_heads_forward(context)[0]
    if qk_matmul_output_mode == 0:
        scores, _ = scale_forward(scores_forward(q, k)[0], divisor=divisor)
        found["qk_matmul_output"] = ungroup_queries_forward(scores)[0]
    if qk_matmul_output_mode == 3 and not flash:
        found["qk_matmul_output"] = ungroup_queries_forward(attention_weights(saved))[0]
    return found


def attention_mask(
    x: Arrays,
    T: int,
    S: int,
    past: int,
    *,
    is_causal: int = 0,
    left_window_size: int = -1,
    right_window_size: int = -1,
) -> np.ndarray | None:
    """[B or 1, H or 1, T, S]; query i stands where key i + offset does. None: added to scores."""
    given, real = x.get("attn_mask", np.ones(S, bool)), x.get("nonpad_kv_seqlen")
    if given.dtype != bool:
        if not np.isin(given, (0, -np.inf)).all():
            return None
        given = given == 0
    short = [(0, 0)] * (given.ndim - 1) + [(0, S - given.shape[-1])]
    mask = np.pad(given, short) & np.ones((1, 1, T, S), bool)
    offset = np.array([past]) if real is None else real - T
    i, j = np.arange(T)[:, None] + offset[:, None, None, None], np.arange(S)
    if real is not None:
        mask = mask & (j < real[:, None, None, None])
    if is_causal:
        mask = mask & (j <= i)
    if left_window_size >= 0:
        mask = mask & (j >= i - left_window_size)
    if right_window_size >= 0:
        mask = mask & (j <= i + right_window_size)
    return mask


def norm(forward: Any, x: Arrays, *, axis: int = -1, epsilon: float = 1e-5) -> Found:
    """Over all axes from `axis` on, which npgpt has as one."""
    X, *params = x.values()
    y, (_, inverse, _) = forward(
        X.reshape(*X.shape[: axis % X.ndim], -1), *(p.reshape(-1) for p in params), eps=epsilon
    )
    ones = [1] * (X.ndim - axis % X.ndim)
    return {"Y": y.reshape(X.shape), "InvStdDev": inverse.reshape(*X.shape[: axis % X.ndim], *ones)}


def logarithms(x: Arrays, *, axis: int = -1) -> Found:
    return {"y": np.moveaxis(log_softmax(np.moveaxis(x["x"], axis, -1)), -1, axis)}


def activation(name: str, x: Arrays, *, alpha: float = 1.0) -> Found:
    return {"y": ACTIVATIONS[name][0](x["x"])[0]}


def gelu(x: Arrays, *, approximate: bytes = b"none") -> Found:
    return activation({b"none": "gelu", b"tanh": "gelu_new"}[approximate], x)


def cross_entropy(x: Arrays, *, reduction: bytes = b"mean", ignore_index: int = -100) -> Found:
    """Classes stand on axis 1; without a mean, each loss alone is the mean of one."""
    if "w" in x:
        return None
    logits, targets = np.moveaxis(x["x"], 1, -1), x["y"]

    def loss(*place: int) -> Any:
        return cross_entropy_forward(logits[place], targets[place], ignore_index=ignore_index)[0]

    if reduction == b"mean":
        z = loss()
    else:
        each = np.array([loss(*place) for place in np.ndindex(targets.shape)])
        z = each.sum() if reduction == b"sum" else each.reshape(targets.shape)
    return {"z": z, "log_prob": np.moveaxis(log_softmax(logits), -1, 1)}


def rotary(
    x: Arrays, *, num_heads: int = 0, interleaved: int = 0, rotary_embedding_dim: int = 0
) -> Found:
    if interleaved or rotary_embedding_dim:
        return None
    cos, sin = x["cos_cache"], x["sin_cache"]
    if "position_ids" in x:
        cos, sin = cos[x["position_ids"]], sin[x["position_ids"]]
    turned = x["input"] if not num_heads else split_heads_forward(x["input"], n_head=num_heads)[0]
    turned, _ = rope_forward(turned, cos=cos[:, None], sin=sin[:, None])
    return {"output": merge_heads_forward(turned)[0] if num_heads else turned}


def gemm(x: Arrays, *, transB: int = 0, **other: Any) -> Found:
    a, W = x["a"], x["b"].T if transB else x["b"]
    if other or ("c" in x and x["c"].shape != (1, W.shape[1])):
        return None
    return {"y": linear_forward(a, W, x["c"][0])[0] if "c" in x else project_forward(a, W)[0]}


def matmul(x: Arrays) -> Found:
    a, b = x["a"], x["b"]
    if min(a.ndim, b.ndim) < 2:
        return None
    return {"c": (project_forward if b.ndim == 2 else weighted_sum_forward)(a, b)[0]}


def gather(x: Arrays, *, axis: int = 0) -> Found:
    data, ids = x["data"], x["indices"]
    if axis or (ids < 0).any():
        return None
    rows, _ = lookup_forward(ids, data.reshape(len(data), -1))
    return {"y": rows.reshape(*ids.shape, *data.shape[1:])}


def dropout(x: Arrays, *, seed: int = 0, ratio: float = 0.5) -> Found:
    """With another generator, so only what drops nothing."""
    p = float(x.get("r", ratio))
    rng = np.random.default_rng(seed) if x.get("t", False) else None
    return None if p and rng else {"y": dropout_forward(x["x"], p=p, rng=rng)[0]}


def softmax(x: Arrays, *, axis: int = -1) -> Found:
    return {"y": softmax_forward(x["x"], axis=axis)[0]}


# Operator, ONNX's module of its cases, how npgpt computes it, how many cases count at least.
OPERATORS: list[tuple[str, str, Any, int]] = [
    ("Attention", "attention", attention, 38),
    ("Attention", "attention", partial(attention, flash=True), 38),
    ("LayerNormalization", "layernormalization", partial(norm, layer_norm_forward), 19),
    ("RMSNormalization", "rmsnormalization", partial(norm, rms_norm_forward), 19),
    ("Softmax", "softmax", softmax, 7),
    ("LogSoftmax", "logsoftmax", logarithms, 7),
    ("Gelu", "gelu", gelu, 4),
    ("Relu", "relu", partial(activation, "relu"), 1),
    ("Tanh", "tanh", partial(activation, "tanh"), 2),
    ("Swish", "swish", partial(activation, "silu"), 1),
    ("SoftmaxCrossEntropyLoss", "softmax_cross_entropy_loss", cross_entropy, 18),
    ("RotaryEmbedding", "rotaryembedding", rotary, 3),
    ("Gemm", "gemm", gemm, 4),
    ("MatMul", "matmul", matmul, 4),
    ("Gather", "gather", gather, 1),
    ("Dropout", "dropout", dropout, 8),
]


@pytest.fixture(scope="module")
def cases() -> list[tuple[Any, Arrays, Arrays, str]]:
    """Node, inputs and outputs by name, and the name of every case of these operators."""
    if importlib.util.find_spec("onnx") is None:
        pytest.skip('ONNX\'s cases need: pip install "npgpt[parity]"')
    from onnx.backend.test.case import node

    found: list[Any] = []

    def keep(op: Any, inputs: Any, outputs: Any, name: str, **_: Any) -> None:
        ins, outs = ([n for n in names if n] for names in (op.input, op.output))
        found.append((op, dict(zip(ins, inputs)), dict(zip(outs, outputs)), name))  # noqa: B905

    # A module makes its cases when it is imported; all the others of ONNX take ten seconds.
    with mock.patch.object(node, "expect", keep):
        for _, module, *_ in OPERATORS:
            importlib.import_module(f"{node.__name__}.{module}")
    return found


@pytest.mark.hf
@pytest.mark.parametrize(
    ("operator", "ours", "at_least"),
    [(operator, ours, at_least) for operator, _, ours, at_least in OPERATORS],
    ids=[operator for operator, *_ in OPERATORS],
)
def test_every_case_that_npgpt_offers(cases, operator, ours, at_least) -> None:
    from onnx.helper import get_attribute_value

    got: dict[str, Any] = {}
    want: dict[str, Any] = {}
    counted = set()
    for op, inputs, outputs, name in cases:
        half = any(x.dtype not in (np.float32, np.float64, np.int64, bool) for x in inputs.values())
        if op.op_type != operator or half:
            continue
        found = ours(inputs, **{a.name: get_attribute_value(a) for a in op.attribute})
        if found is None:
            continue
        counted.add(name)
        assert op.output[0] in found
        for output in found.keys() & outputs.keys():
            got[f"{name} {output}"] = found[output]
            want[f"{name} {output}"] = outputs[output]
    assert len(counted) >= at_least
    check_close(got, want, 3e-7)
