"""What the examples of chapter 7 claim, and what breaks it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tests.examples.faults.kinds import (
    LAYERS,
    OPS,
    Fault,
    Faults,
    Rewritten,
    given,
    result,
    uneven,
    with_parameter,
)


def positional(S: np.ndarray) -> np.ndarray:
    """Scores that know how far to the left a key is."""
    return S + 0.1 * np.arange(S.shape[-1])


def one_head(true: Any) -> Any:
    return lambda x, *, n_head: true(x, n_head=1)


def copied(true: Any) -> Any:
    """Every head gets the whole vector, not its piece."""
    return lambda x, *, n_head: (np.stack([x] * n_head), None)


EVERYONE = result(np.ones_like)
STEPS = (
    *("linear.linear", "scores.scores", "scores.scale", "mask.mask", "softmax.softmax"),
    "weighted_sum.weighted_sum",
)
FAULTS: Faults = {
    "ch07_attention_six_steps": [
        *(
            Fault(f"{OPS}{step}_{way}", result(uneven), words)
            for step in STEPS
            for way, words in (("forward", "article prints"), ("backward", "central differences"))
        ),
        Rewritten("p = P[1, 0] * P[1, 1]", "p = P[1, 0]", "t0 has one weight"),
        Rewritten("dmasked[2] < 0", "dmasked[0] < 0", "t2 would look away"),
    ],
    "ch07_flash_attention": [
        Fault(f"{LAYERS}attention.attention_forward", result(uneven), "whole table"),
        Fault(
            f"{OPS}flash_attention.flash_attention_forward",
            result(lambda saved: (*saved[:4], 2 * saved[4], *saved[5:]), 1),
            "log Σ exp",
        ),
        *(
            Fault(f"{LAYERS}attention.attention_backward", result(uneven, n), f"hold: {name}")
            for n, name in enumerate(("dq", "dk", "dv"))
        ),
        Rewritten("TILE = 16", "TILE = 4096", "2 times as many numbers"),
        Rewritten("return log_total.size", "return log_total.size**2", "2 times as many"),
        Rewritten(
            "tracemalloc.stop()\n", "tracemalloc.stop()\n    peak = 4.5 * peak\n", "one table alone"
        ),
    ],
    "ch07_gqa": [
        Fault(
            "npgpt.models.llama.config.param_shapes",
            given(lambda c: [dataclasses.replace(c, num_key_value_heads=32)]),
            "heads of Q for one",
        ),
        Fault(
            "npgpt.models.llama.config.param_shapes",
            with_parameter("layers.0.mlp.up_proj.bias", (14336,)),
            "no bias",
        ),
        Fault(
            "npgpt.decoding.kv_cache._room",
            given(lambda room, dtype: (room, np.dtype(np.float32))),
            "heads kept: 32",
        ),
        Fault(
            f"{LAYERS}grouped_attention.share_heads_forward",
            result(lambda k: k[..., ::-1, :, :, :]),
            "ordinary attention",
        ),
        Fault(
            f"{LAYERS}grouped_attention.share_heads_backward",
            lambda true: lambda dy, saved: dy[..., 0, :, :],
            "sum of its copies",
        ),
        Rewritten(
            "other[:, :D_H] += 1", "other[:, D_H:] += 1", "weight tables that change · · ■ ■"
        ),
        Rewritten("saved.probs[1]", "saved.probs[0]", "still look elsewhere"),
    ],
    "ch07_heads": [
        Fault(f"{OPS}heads.split_heads_forward", one_head, "heads: 1 "),
        Fault(f"{OPS}heads.split_heads_forward", copied, "numbers each: 768"),
        Fault(
            f"{OPS}heads.split_heads_forward",
            result(lambda heads: heads[::-1]),
            "the 12 pieces of x W_Q",
        ),
        Fault(
            f"{OPS}linear.linear_forward",
            given(lambda x, W, b: (x * (np.arange(x.shape[-1]) > 0), W, b)),
            "change one number of x",
        ),
        *(
            Fault("npgpt.models.gpt2.config.param_shapes", with_parameter(name, shape), words)
            for name, shape, words in (
                ("h.0.attn.c_proj.weight", (768, 64), "W_O: d² parameters"),
                ("h.0.attn.c_attn.bias", (768,), "W_Q, W_K, W_V: 768"),
                ("h.0.attn.rotary.weight", (64,), "together"),
            )
        ),
        Fault(f"{OPS}scores.scores_forward", result(lambda S: S[..., :-1]), "scores, T = 1024"),
        Fault(f"{LAYERS}self_attention.attend_forward", result(uneven), "W_V W_O folds"),
        Fault(
            f"{LAYERS}self_attention.self_attention_forward",
            lambda right: lambda *args, **settings: right(*args, **{**settings, "n_head": 1}),
            "12 heads it does not",
        ),
        Fault(
            "npgpt.decoding.kv_cache._room",
            given(lambda room, dtype: ((*room[:-1], max(room[-1], 64)), dtype)),
            "hold: heads 1: ",
        ),
        Rewritten("(W_Q, W_K, W_V), strict", "(W_Q, W_V, W_K), strict", "K of the model"),
    ],
    "ch07_heads_of_a_model": [
        Fault(
            "npgpt.models.gpt2.model.self_attention_backward",
            result(uneven, 1),
            "head 1 a copy of head 0",
        ),
        Fault(
            "npgpt.models.gpt2.model.self_attention_backward",
            result(np.zeros_like, 1),
            "head 2, drawn on its own",
        ),
    ],
    "ch07_heads_switched_off": [
        Fault(
            f"{LAYERS}self_attention.merge_heads_forward",
            given(lambda heads: [heads[::-1]]),
            "takes away its P V W_O",
        ),
        Rewritten("silenced[list(off)] = 0", "pass", "takes away its P V W_O"),
        Rewritten("- whole for h", "* 0 for h", "every head changes something"),
        Rewritten("{n: range(H) for n in range(L)}", "{}", "all together they cannot"),
    ],
    "ch07_heatmap": [
        Fault("npgpt.ops.mask.attention_mask_for", EVERYONE, "lower triangular"),
        Fault(f"{LAYERS}attention.softmax_forward", result(uneven), "each row sums to 1"),
        Fault(f"{LAYERS}self_attention.split_heads_forward", one_head, "6 blocks x 5 heads"),
        Rewritten("*previous_token_head(tables)[:2]", "0, 1", "looking at all alike"),
    ],
    "ch07_mask": [
        Fault(f"{OPS}mask.causal_mask", EVERYONE, "changed: ■ ■ ■"),
        Fault(f"{OPS}mask.mask_forward", lambda true: lambda x, mask: (x, mask), "■ ■ ■"),
        Fault("npgpt.ops.mask.attention_mask_for", EVERYONE, "logits of one pass"),
        Fault(
            f"{OPS}cross_entropy.cross_entropy_forward",
            lambda true: lambda x, t: (true(x, t)[0] * t.size, None),
            "the mean of the 10 separate losses",
        ),
        Fault(
            f"{LAYERS}attention.attention_forward",
            lambda true: lambda *qkv, **settings: true(*qkv, **{**settings, "divisor": 1e9}),
            "copier without mask",
        ),
        Fault(
            f"{LAYERS}attention.attention_forward",
            lambda true: lambda *qkv, mask, **settings: true(*qkv, mask=mask | True, **settings),
            "copier with the mask: 6 of 6",
        ),
        Fault(f"{OPS}scores.scores_forward", result(positional), "t2 gets the same"),
        Fault(
            f"{OPS}position.position_forward",
            lambda true: lambda x, positions, wpe: (x, None),
            "t2 notices",
        ),
        Fault(
            f"{OPS}scores.scores_forward",
            result(lambda S: positional(S) if len(S) == 6 else S),
            "five tokens in 20 orders",
        ),
        Rewritten("changed[-1] = (ids[-1] + 1)", "changed[0] = (ids[-1] + 1)", "a different last"),
    ],
    "ch07_query_and_key": [
        Fault(f"{OPS}scores.scores_forward", result(positional), "x xᵀ is symmetric"),
        Fault(f"{OPS}scores.scores_forward", result(np.negative), "itself highest"),
        Fault(f"{OPS}project.project_forward", result(lambda y: y[::-1]), "S is not"),
        Rewritten("ask = np.array(", "ask = np.eye(3) + 0 * np.array(", "it finds cat"),
        Rewritten(
            "words = np.eye(3)",
            "words = np.array([[3.0, 0, 0], [0, 1, 0], [1, 0, 1]])",
            "finds only",
        ),
    ],
    "ch07_scaling": [
        Fault(f"{OPS}scores.scores_forward", result(lambda S: 2 * S), "smallest: -8"),
        Fault(f"{OPS}scores.scores_forward", result(lambda S: np.minimum(S, 3)), "largest"),
        Fault(
            f"{OPS}scores.scores_forward",
            lambda true: lambda q, k: (np.sqrt(q.shape[-1] / 4) * true(q, k)[0], None),
            "variance 1, 2, 3, 4",
        ),
        Fault(
            f"{OPS}scores.scores_forward",
            lambda true: lambda q, k: ((1 + (q.shape[-1] > 4) / 40) * true(q, k)[0], None),
            "hold:     64 ",
        ),
        Fault(f"{OPS}scores.scale_forward", result(lambda S: S / 2), "hold:      4 "),
        Fault(f"{OPS}softmax.softmax_forward", result(np.sqrt), "p_1: "),
        Fault(f"{OPS}softmax.softmax_backward", result(lambda dx: 2 * dx), "∂p_1/∂s_1"),
    ],
}
