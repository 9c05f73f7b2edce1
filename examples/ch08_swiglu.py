"""SwiGLU, Llama's FFN: one projection opens the gates for another (article 8.1)."""

from __future__ import annotations

import math

import numpy as np
from show import check, claim, heading, matrices, say

from npgpt.describe.architectures import PRESETS
from npgpt.layers.swiglu import swiglu_forward
from npgpt.models.llama.config import LlamaConfig, param_shapes

heading(
    "8.1",
    say("SwiGLU: silu(x W_gate) is a gate for x W_up", "SwiGLU：silu(x W_gate) 是 x W_up 的门"),
)
x, W_up = np.array([[1.0, 0], [0, 1]]), np.array([[1.0, 2, 3], [4, 5, 6]])
W_gate, W_down = np.array([[10.0, -10, 1], [-10, 10, 1]]), np.array([[1.0, 0], [0, 1], [1, 1]])
y, saved = swiglu_forward(x, W_gate, W_up, W_down)
wide, up = x @ W_gate, x @ W_up
gate = wide / (1 + np.exp(-wide))  # silu(z) = z σ(z)
steps = ("x W_gate", wide), ("gate = silu", gate), ("up = x W_up", up), ("gate ⊙ up", gate * up)
matrices(*steps, ("y = … W_down", y), rows=["t0", "t1"])
claim("swiglu_forward: y = (silu(x W_gate) ⊙ x W_up) W_down", np.allclose(y, (gate * up) @ W_down))
shut, _ = swiglu_forward(x, np.full_like(W_gate, -30), 1000 * W_up, W_down)
claim(
    say(
        "with all gates shut nothing comes through, however loud x W_up is",
        "门全关上时什么也过不去，不管 x W_up 多响",
    ),
    np.abs(shut).max() < 1e-6,
)

heading("8.1", say("three matrices instead of two, and less wide", "三个矩阵代替两个，宽度收窄"))
llama = LlamaConfig()  # Llama-7B
d, F = llama.hidden_size, llama.intermediate_size
check(say("width of Llama-7B's, in d", "Llama-7B 的宽度是 d 的几倍"), F / d, "2.7")
claim(
    say(
        f"so 3 · d · {F} is {3 * d * F / (8 * d**2):.2f} times GPT-2's 8 d²",
        f"所以 3 · d · {F} 是 GPT-2 的 8 d² 的 {3 * d * F / (8 * d**2):.2f} 倍",
    ),
    abs(3 * d * F / (8 * d**2) - 1) < 0.02,
)
shapes = param_shapes(PRESETS["llama-3-8b"])
block = {name: math.prod(shape) for name, shape in shapes.items() if name.startswith("layers.0.")}
mlp = sum(size for name, size in block.items() if ".mlp." in name)
check(
    say("share of the FFN in a block of Llama-3-8B", "FFN 在 Llama-3-8B 一层里占"),
    100 * mlp / sum(block.values()),
    "81",
    "%",
)
