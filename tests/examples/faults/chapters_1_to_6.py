"""What the examples of chapters 1 to 6, 13 and of the next article claim, and what breaks it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.examples.faults.kinds import LAYERS, OPS, Fault, Faults, Wrong, given, result


def across_tokens(right: Any) -> Any:
    """A LayerNorm that takes the mean of all tokens."""
    return lambda x, *rest, eps: (x - x.mean(axis=-2, keepdims=True), right(x, *rest, eps=eps)[1])


def last_one(right: Any) -> Any:
    """A lookup's gradient in which the first id gets nothing."""
    return lambda dy, saved, **more: right(dy * (np.arange(len(dy)) > 0)[:, None], saved, **more)


def uphill(right: Any) -> Any:
    """A step in the direction of the gradient."""

    def faulty(params: Any, grads: Any, *rest: Any, **more: Any) -> Any:
        return right(params, {name: -grad for name, grad in grads.items()}, *rest, **more)

    return faulty


def turned(wrong: Wrong) -> Fault:
    """A rotation by something else."""
    return Fault(f"{OPS}rope.rope_forward", wrong, "猫 looks at 狗, two to the right")


def no_turn(right: Any) -> Any:
    """Vectors stay as they are."""
    return lambda x, *, cos, sin: (x, (cos, sin))


def not_normed(right: Any) -> Any:
    """A softmax that does not divide."""
    return lambda x, *, axis: (np.exp(x), right(x, axis=axis)[1])


SEES_ALL: Wrong = result(np.ones_like)  # a mask without a hole
OWN_TEXT = given(lambda x, k, v, *rest: (x, 0 * k, 0 * v, *rest))  # nothing of the source
FAULTS: Faults = {
    "ch01_overview": [
        Fault(f"{OPS}softmax.softmax_forward", not_normed, "the probabilities of each position")
    ],
    "ch01_parts": [
        Fault(f"{OPS}mask.causal_mask", SEES_ALL, "3  attention"),
        Fault(f"{OPS}layer_norm.layer_norm_forward", across_tokens, "5  residual"),
    ],
    "ch02_encoder_decoder": [
        Fault(f"{OPS}mask.causal_mask", SEES_ALL, "change target token 2: rows of the decoder"),
        Fault(
            f"{LAYERS}multi_head.query_attention_forward",
            OWN_TEXT,
            "change source token 2: rows of the encoder",
        ),
        Fault(
            f"{OPS}layer_norm.layer_norm_forward",
            across_tokens,
            "change target token 2: rows of the decoder",
        ),
    ],
    "ch02_columns": [Fault(f"{OPS}mask.causal_mask", SEES_ALL, "mask: ")],
    "ch03_three_routes": [
        Fault(f"{OPS}mask.causal_mask", SEES_ALL, "decoder-only"),
        Fault(
            f"{OPS}cross_entropy.cross_entropy_backward",
            result(lambda dlogits: dlogits + 1),
            "encoder-only: the masked token",
        ),
    ],
    "ch04_decoder_only": [Fault(f"{OPS}mask.causal_mask", SEES_ALL, "decoder-only")],
    "ch05_token_embedding": [
        Fault(f"{OPS}lookup.lookup_backward", last_one, "rows with a gradient")
    ],
    "ch06_position": [
        Fault(
            f"{OPS}position.position_forward",
            lambda right: lambda x, *rest: (x, right(x, *rest)[1]),
            "is not what the article prints",
        )
    ],
    "ch06_rope": [
        turned(no_turn),
        turned(lambda right: lambda x, *, cos, sin: right(x, cos=cos, sin=-sin)),
        turned(lambda right: lambda x, *, cos, sin: right(x, cos=cos, sin=2 * sin)),
    ],
    "ch13_self_test": [
        Fault(f"{OPS}mask.causal_mask", SEES_ALL, "token 3 changes"),
        Fault(f"{OPS}rope.rope_forward", no_turn, "猫 (2, 0), 30° a position"),
    ],
    "next_training_and_inference": [
        Fault("npgpt.train.optim.adamw_step", uphill, "one AdamW step")
    ],
    "next_gelu": [
        Fault(
            f"{OPS}activation.ACTIVATIONS",
            lambda right: {**right, "gelu": right["gelu_new"]},
            "ReLU in its place",
        ),
        Fault(f"{OPS}softmax.softmax_forward", not_normed, "all logits lower"),
    ],
}
