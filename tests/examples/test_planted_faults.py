"""What an example claims fails where npgpt is at fault: a fault for each family of claims."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.examples.test_examples import EXAMPLES

# Replaces what a module defines, wherever it has been imported, before the script runs.
PLANT = """
import importlib, runpy, sys
import numpy as np
right = getattr(importlib.import_module({module!r}), {name!r})
wrong = {fault}
for module in list(sys.modules.values()):
    if vars(module).get({name!r}) is right:
        setattr(module, {name!r}, wrong)
sys.path[0] = {examples!r}
sys.argv = [{script!r}, "--lang", "en"]
runpy.run_path({script!r}, run_name="__main__")
"""
SEES_ALL = ("npgpt.ops.mask", "causal_mask", "lambda T, S: np.ones((T, S), bool)")
NO_TURN = ("npgpt.ops.rope", "rope_forward", "lambda x, *, cos, sin: (x, (cos, sin))")
TURNS_BACK = (
    "npgpt.ops.rope",
    "rope_forward",
    "lambda x, *, cos, sin: right(x, cos=cos, sin=-sin)",
)
NOT_A_TURN = (
    "npgpt.ops.rope",
    "rope_forward",
    "lambda x, *, cos, sin: right(x, cos=cos, sin=2 * sin)",
)
ACROSS_TOKENS = (
    "npgpt.ops.layer_norm",
    "layer_norm_forward",
    "lambda x, *rest, eps: ((x - x.mean(axis=-2, keepdims=True)), right(x, *rest, eps=eps)[1])",
)
OWN_TEXT = (  # cross-attention without a source
    "npgpt.layers.multi_head",
    "query_attention_forward",
    "lambda x, k, v, *rest, **more: right(x, 0 * k, 0 * v, *rest, **more)",
)
LAST_ONE = (  # of two equal ids only one gradient arrives
    "npgpt.ops.lookup",
    "lookup_backward",
    "lambda dy, saved, **more: right(dy * (np.arange(len(dy)) > 0)[:, None], saved, **more)",
)
NO_POSITION = ("npgpt.ops.position", "position_forward", "lambda x, *rest: (x, right(x, *rest)[1])")
ASKS_ALL = (
    "npgpt.ops.cross_entropy",
    "cross_entropy_backward",
    "lambda dloss, saved: right(dloss, saved) + 1",
)
UPHILL = (
    "npgpt.train.optim",
    "adamw_step",
    "lambda params, grads, *rest, **more: "
    "right(params, {name: -grad for name, grad in grads.items()}, *rest, **more)",
)
ONE_GELU = ("npgpt.ops.activation", "ACTIVATIONS", "{**right, 'gelu': right['gelu_new']}")
NOT_NORMED = (
    "npgpt.ops.softmax",
    "softmax_forward",
    "lambda x, *, axis: (np.exp(x), right(x, axis=axis)[1])",
)


@pytest.mark.parametrize(
    ("script", "fault", "fails"),
    [
        ("ch01_overview", NOT_NORMED, "the probabilities of each position"),
        ("ch01_parts", SEES_ALL, "3  attention"),
        ("ch01_parts", ACROSS_TOKENS, "5  residual"),
        ("ch02_encoder_decoder", SEES_ALL, "change target token 2: rows of the decoder"),
        ("ch02_encoder_decoder", OWN_TEXT, "change source token 2: rows of the encoder"),
        ("ch02_encoder_decoder", ACROSS_TOKENS, "change target token 2: rows of the decoder"),
        ("ch02_columns", SEES_ALL, "mask: "),
        ("ch03_three_routes", SEES_ALL, "decoder-only"),
        ("ch03_three_routes", ASKS_ALL, "encoder-only: the masked token"),
        ("ch04_decoder_only", SEES_ALL, "decoder-only"),
        ("ch05_token_embedding", LAST_ONE, "rows with a gradient"),
        ("ch06_position", NO_POSITION, "is not what the article prints"),
        ("ch06_rope", NO_TURN, "猫 looks at 狗, two to the right: 4.000"),
        ("ch06_rope", TURNS_BACK, "猫 looks at 狗, two to the right: 3.732"),
        ("ch06_rope", NOT_A_TURN, "猫 looks at 狗, two to the right"),
        ("ch13_self_test", SEES_ALL, "token 3 changes"),
        ("ch13_self_test", NO_TURN, "猫 (2, 0), 30° a position"),
        ("next_training_and_inference", UPHILL, "one AdamW step"),
        ("next_gelu", ONE_GELU, "ReLU in its place"),
        ("next_gelu", NOT_NORMED, "all logits lower"),
    ],
)
def test_a_fault_stops_the_example(script: str, fault: tuple[str, str, str], fails: str) -> None:
    module, name, code = fault
    path = str(EXAMPLES / f"{script}.py")
    plant = PLANT.format(module=module, name=name, fault=code, examples=str(EXAMPLES), script=path)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", plant]
    done = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 1
    assert fails in done.stderr.partition("AssertionError: ")[2]
