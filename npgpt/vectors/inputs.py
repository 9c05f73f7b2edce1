"""What the cases of operations and layers are computed from: a table to be read.

Operation -> case -> arguments of its forward function. A tuple is the shape of normal numbers to
draw. The sizes are odd and differ, so that a swapped axis is seen; the cases are those in which
ports go wrong: one token, T != S, queries that see nothing, ids that repeat, large scores.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from npgpt.ops.cross_entropy import IGNORE_INDEX
from npgpt.ops.mask import attention_mask_for, causal_mask
from npgpt.ops.rope import default_frequencies, llama3_frequencies, rotation


class Draw(NamedTuple):
    """`shift` + `scale` times normal numbers of a shape, -∞ where `open` is False."""

    shape: tuple[int, ...]
    scale: float = 1.0
    shift: float = 0.0
    open: Any = True


def case(**arguments: Any) -> dict[str, Any]:
    """Arguments of a forward function by name."""
    return arguments


Cases = dict[str, dict[str, Any]]

PADDED = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])  # attention_mask; the first text is shorter
CAUSAL = causal_mask(3, 5)  # three new tokens behind two cached ones
BLIND = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]], bool)  # row 1 sees nothing
TARGETS = np.array([[6, 0, -100], [6, -100, 3]])
IDS = np.array([[3, 0, 3, 3], [6, 5, 0, 3]])  # 3 four times, 1 never
CHOSEN = np.arange(120).reshape(3, 2, 5, 4) % 7 % 4 < 2
ROOT = math.sqrt(5)

ANY_SHAPE: Cases = {
    "batch": case(x=(2, 3, 5)),
    "one_number": case(x=(1,)),
    "far_from_zero": case(x=Draw((4, 7), 90)),  # beyond 88, where exp overflows
    "near_zero": case(x=np.array([0.0, -0.0, 1e-30, -1e-30, 1e-4, -1e-4, 0.5, -0.5])),
}
LOSS: Cases = {
    "ignored_targets": case(logits=(2, 3, 7), targets=TARGETS, ignore_index=IGNORE_INDEX),
    "one_token": case(logits=(1, 5), targets=np.array([4]), ignore_index=IGNORE_INDEX),
    "large_logits": case(
        logits=Draw((4, 9), 5, 1e3), targets=np.array([8, 2, 2, 0]), ignore_index=IGNORE_INDEX
    ),
    "nothing_to_predict": case(
        logits=(2, 5), targets=np.array([-100, -100]), ignore_index=IGNORE_INDEX
    ),
}


def turned(positions: Any, d_h: int, theta: float = 10000.0) -> dict[str, np.ndarray]:
    """cos and sin of the angles at these positions."""
    cos, sin = rotation(np.array(positions), default_frequencies(d_h, theta))
    return {"cos": cos, "sin": sin}


def llama3(positions: Any, d_h: int) -> dict[str, np.ndarray]:
    cos, sin = rotation(np.array(positions), llama3_frequencies(d_h, 500.0, 8.0, 1.0, 4.0, 64))
    return {"cos": cos, "sin": sin}


OPERATIONS: dict[str, Cases] = {
    # chapter 5, 6: tokens and positions
    "lookup": {
        "repeated_ids": case(ids=IDS, table=(7, 5)),
        "one_token": case(ids=np.array([2]), table=(3, 7)),
    },
    "position": {
        "one_row_for_a_batch": case(x=(2, 4, 5), positions=np.array([0, 1, 2, 3]), table=(6, 5)),
        "padded_on_the_left": case(
            x=(2, 4, 5), positions=np.array([[0, 0, 0, 1], [0, 1, 2, 3]]), table=(6, 5)
        ),
    },
    "rope": {
        "heads": case(x=(2, 3, 4, 6), **turned([0, 1, 2, 3], 6)),
        "far": case(x=(2, 10), **turned([8000, 8001], 10)),
        "padded_on_the_left": case(x=(2, 3, 2, 4), **turned([[[0, 0]], [[0, 1]]], 4)),
        "llama3": case(x=(3, 8), **llama3([0, 5, 200], 8)),
    },
    # chapter 7: attention
    "linear": {
        "batch": case(x=(2, 3, 5), W=(5, 7), b=(7,)),
        "one_token": case(x=(1, 3), W=(3, 4), b=(4,)),
        "one_column": case(x=(6, 5), W=(5, 1), b=(1,)),
    },
    "project": {"batch": case(x=(2, 3, 5), W=(5, 7)), "square": case(x=(4, 5), W=(5, 5))},
    "split_heads": {
        "batch": case(x=(2, 5, 6), n_head=3),
        "one_head": case(x=(4, 5), n_head=1),
        "one_token": case(x=(1, 6), n_head=2),
    },
    "merge_heads": {"batch": case(x=(2, 3, 5, 4)), "one_token": case(x=(2, 1, 3))},
    "group_queries": {
        "batch": case(q=(2, 6, 3, 4), n_kv_head=2),
        "all": case(q=(6, 2, 3), n_kv_head=1),
    },
    "ungroup_queries": {"batch": case(x=(2, 2, 3, 5, 4)), "one_each": case(x=(3, 1, 2, 5))},
    "share_heads": {
        "batch": case(x=(2, 2, 5, 4), n_group=3),
        "one_each": case(x=(3, 5, 2), n_group=1),
    },
    "scores": {
        "heads": case(q=(2, 3, 3, 4), k=(2, 3, 5, 4)),
        "one_query": case(q=(1, 7), k=(6, 7)),
        "large": case(q=Draw((3, 5), 100), k=Draw((4, 5), 100)),
    },
    "scale": {
        "heads": case(scores=(2, 3, 5), divisor=ROOT),
        "by_one": case(scores=(3, 4), divisor=1.0),
    },
    "mask": {
        "causal": case(scores=(2, 3, 5), mask=CAUSAL),
        "padded": case(scores=(2, 3, 5, 5), mask=attention_mask_for(5, 5, PADDED)),
        "blind_row": case(scores=(3, 5), mask=BLIND),
    },
    "softmax": {
        "batch": case(x=(2, 3, 7), axis=-1),
        "other_axis": case(x=(2, 5, 3), axis=1),
        "masked": case(x=Draw((2, 3, 5), open=CAUSAL), axis=-1),
        "blind_row": case(x=Draw((3, 5), open=BLIND), axis=-1),
        "large": case(x=Draw((4, 5), 5, 1e3), axis=-1),
        "one_key": case(x=(4, 1), axis=-1),
    },
    "weighted_sum": {
        "heads": case(probs=(2, 3, 3, 5), v=(2, 3, 5, 4)),
        "one_query": case(probs=(1, 5), v=(5, 3)),
    },
    "flash_attention": {
        "causal": case(q=(2, 3, 3, 4), k=(2, 3, 5, 4), v=(2, 3, 5, 4), divisor=2.0, mask=CAUSAL),
        "blind_row": case(q=(3, 5), k=(5, 5), v=(5, 5), divisor=ROOT, mask=BLIND),
        "large": case(
            q=Draw((5, 4), 5), k=Draw((5, 4), 5), v=(5, 4), divisor=2.0, mask=causal_mask(5, 5)
        ),
    },
    # chapter 8, 9: feed-forward networks and norms
    **dict.fromkeys(("gelu_tanh", "gelu_erf", "relu", "silu", "tanh"), ANY_SHAPE),
    "layer_norm": {
        "batch": case(x=(2, 3, 7), weight=(7,), bias=(7,), eps=1e-5),
        "one_token": case(x=(1, 5), weight=(5,), bias=(5,), eps=1e-5),
        "far_from_zero": case(x=Draw((3, 7), 1, 100), weight=(7,), bias=(7,), eps=1e-5),
        "small": case(x=Draw((3, 5), 1e-3), weight=(5,), bias=(5,), eps=1e-5),
        "large_eps": case(x=(3, 5), weight=(5,), bias=(5,), eps=0.1),
        "constant": case(x=np.full((2, 5), 3.0), weight=(5,), bias=(5,), eps=1e-5),
    },
    "top_k": {
        "batch": case(probs=(2, 3, 7), k=3),
        "all": case(probs=(4, 5), k=5),
    },
    "renormalise": {
        "batch": case(weights=Draw((2, 3, 5), 0.1, 1)),
        "zeros": case(weights=np.array([[0, 0.25, 0.5, 0], [0, 0, 0, 0.125]])),
    },
    "load_balance": {
        "two_of_three": case(
            probs=Draw((4, 3), 0.1, 1), chosen=np.arange(12).reshape(4, 3) % 5 < 2
        ),
        "padded": case(
            probs=Draw((3, 2, 5, 4), 0.1, 1), chosen=CHOSEN, counted=PADDED.astype(bool)
        ),
    },
    "rms_norm": {
        "batch": case(x=(2, 3, 7), weight=(7,), eps=1e-6),
        "one_token": case(x=(1, 5), weight=(5,), eps=1e-6),
        "small": case(x=Draw((3, 5), 1e-3), weight=(5,), eps=1e-6),
        "large_eps": case(x=(3, 5), weight=(5,), eps=0.1),
        "zeros": case(x=np.zeros((2, 5)), weight=(5,), eps=1e-6),
    },
    # chapter 10 and training
    "lm_head": {
        "batch": case(x=(2, 3, 5), table=(7, 5)),
        "one_token": case(x=(1, 5), table=(3, 5)),
    },
    "cross_entropy": LOSS,
    "label_smoothing": {
        name: {**given, "smoothing": 0.1} for name, given in LOSS.items() if name != "one_token"
    }
    | {"none": {**LOSS["one_token"], "smoothing": 0.0}},
    "lm_head_loss": {
        "ignored_targets": case(x=(2, 3, 5), targets=TARGETS, table=(7, 5), ignore_index=-100),
        "one_token": case(x=(1, 5), targets=np.array([0]), table=(3, 5), ignore_index=-100),
    },
    "dropout": {
        "a_quarter": case(x=(3, 5), p=0.25, rng=2017),
        "batch": case(x=(2, 3, 4), p=0.5, rng=6),
    },
}

SELF = case(c_attn_weight=(6, 18), c_attn_bias=(18,), c_proj_weight=(6, 6), c_proj_bias=(6,))
FFN = case(c_fc_weight=(5, 7), c_fc_bias=(7,), c_proj_weight=(7, 5), c_proj_bias=(5,))
QUERY = case(W_q=(6, 6), b_q=(6,), W_o=(6, 6), b_o=(6,))
EXPERTS = case(W_router=(5, 4), W_gate=(4, 5, 3), W_up=(4, 5, 3), W_down=(4, 3, 5))
GROUPED = case(x=(2, 3, 5), W_q=(5, 16), W_o=(16, 5), **turned([0, 1, 2], 4))

LAYERS: dict[str, Cases] = {
    "attention": {
        "causal": case(q=(2, 3, 3, 4), k=(2, 3, 5, 4), v=(2, 3, 5, 4), divisor=2.0, mask=CAUSAL),
        "blind_row": case(q=(3, 5), k=(5, 5), v=(5, 5), divisor=ROOT, mask=BLIND),
        "one_token": case(
            q=(2, 1, 3), k=(2, 1, 3), v=(2, 1, 3), divisor=1.5, mask=causal_mask(1, 1)
        ),
    },
    "self_attention": {
        "causal": case(x=(2, 5, 6), **SELF, n_head=3, divisor=math.sqrt(2), mask=causal_mask(5, 5)),
        "padded": case(
            x=(2, 5, 6),
            **SELF,
            n_head=2,
            divisor=math.sqrt(3),
            mask=attention_mask_for(5, 5, PADDED),
        ),
    },
    "keys_values": {
        "batch": case(memory=(2, 5, 6), W_k=(6, 6), b_k=(6,), W_v=(6, 6), b_v=(6,), n_head=3)
    },
    "query_attention": {
        "cross": case(
            x=(2, 4, 6),
            k=(2, 3, 5, 2),
            v=(2, 3, 5, 2),
            **QUERY,
            n_head=3,
            divisor=math.sqrt(2),
            mask=(PADDED == 1)[:, None, None, :],
        ),
    },
    "grouped_attention": {
        "two_shared_heads": case(
            **GROUPED,
            W_k=(5, 8),
            W_v=(5, 8),
            n_head=4,
            n_kv_head=2,
            divisor=2.0,
            mask=causal_mask(3, 3),
        ),
        "one_shared_head": case(
            **GROUPED,
            W_k=(5, 4),
            W_v=(5, 4),
            n_head=4,
            n_kv_head=1,
            divisor=2.0,
            mask=causal_mask(3, 3),
        ),
        "biases_and_norms_in_a_window": case(
            **GROUPED,
            W_k=(5, 8),
            W_v=(5, 8),
            **case(b_q=(16,), b_k=(8,), b_v=(8,), b_o=(5,), g_q=(4,), g_k=(4,), eps=0.1),
            n_head=4,
            n_kv_head=2,
            divisor=2.0,
            mask=causal_mask(3, 3, window=2),
        ),
    },
    "feed_forward": {
        name: case(x=(2, 3, 5), **FFN, activation=name) for name in ("gelu_new", "gelu", "relu")
    },
    "swiglu": {
        "batch": case(x=(2, 3, 5), W_gate=(5, 7), W_up=(5, 7), W_down=(7, 5), activation="silu"),
        "biases": case(
            **case(x=(2, 3, 5), W_gate=(5, 7), W_up=(5, 7), W_down=(7, 5)),
            **case(b_gate=(7,), b_up=(7,), b_down=(5,), activation="silu"),
        ),
    },
    "router": {
        "renormalised": case(x=(2, 3, 5), W=(5, 4), k=2, renormalise=True),
        "plain": case(x=(3, 5), W=(5, 4), k=1, renormalise=False),
    },
    "mixture": {
        "renormalised": case(x=(2, 3, 5), **EXPERTS, k=2, renormalise=True, activation="silu"),
        "plain": case(x=(1, 5), **EXPERTS, k=1, renormalise=False, activation="silu"),
    },
}
