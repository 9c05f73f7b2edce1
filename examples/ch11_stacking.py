"""A block, twelve of them, and 124 million parameters (article chapter 11).

`python -m npgpt.describe gpt2` prints the same count for any configuration, with shapes and FLOPs.
"""

from __future__ import annotations

import math

import numpy as np
from any_model import random_model
from show import check, claim, heading

from npgpt.layers.feed_forward import feed_forward_forward
from npgpt.layers.self_attention import self_attention_forward
from npgpt.models.common import Pass
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.models.gpt2.model import GPT2, block_forward
from npgpt.ops.layer_norm import layer_norm_forward
from npgpt.ops.mask import causal_mask

heading("11.1", "a block: read LayerNorm(x), add to x, twice; [T, d] stays [T, d]")
print("""
flowchart TB
    x["x [T, 768], the residual stream"] --> ln_1["ln_1: LayerNorm"]
    ln_1 --> attn["attn: 12 heads x 64, joined, W_O"]
    attn --> add_1(("+"))
    x -. residual .-> add_1
    add_1 --> ln_2["ln_2: LayerNorm"]
    ln_2 --> mlp["mlp: 768 -> 3072 -> GELU -> 768"]
    mlp --> add_2(("+"))
    add_1 -. residual .-> add_2
    add_2 --> y["x of the next block [T, 768]"]
""")
model, T = random_model(), 5
h = {
    name.removeprefix("h.0."): param
    for name, param in model.params.items()
    if name.startswith("h.0.")
}
x = np.random.default_rng(0).standard_normal((T, 48))
mask = causal_mask(T, T)


def ln(name: str, x: np.ndarray) -> np.ndarray:
    return layer_norm_forward(x, h[f"{name}.weight"], h[f"{name}.bias"], eps=1e-5)[0]


def attn(x: np.ndarray) -> np.ndarray:
    weights = [
        h[f"attn.{part}"]
        for part in ("c_attn.weight", "c_attn.bias", "c_proj.weight", "c_proj.bias")
    ]
    return self_attention_forward(x, *weights, n_head=12, divisor=math.sqrt(4), mask=mask)[0]


def mlp(x: np.ndarray) -> np.ndarray:
    weights = [
        h[f"mlp.{part}"] for part in ("c_fc.weight", "c_fc.bias", "c_proj.weight", "c_proj.bias")
    ]
    return feed_forward_forward(x, *weights, activation="gelu_new")[0]


by_block, _ = block_forward(x, model.params, 0, model.config, mask, Pass())
by_hand = x + attn(ln("ln_1", x))
by_hand = by_hand + mlp(ln("ln_2", by_hand))
claim("x = x + attn(ln_1(x)); x = x + mlp(ln_2(x)) is the block", np.allclose(by_block, by_hand))
twelve = x
for n in range(12):
    twelve, _ = block_forward(twelve, model.params, n, model.config, mask, Pass())
claim(f"twelve of them: {[*x.shape]} -> {[*twelve.shape]}", twelve.shape == x.shape)

heading("11.2", "GPT-2 small, every parameter")
config = GPT2Config()
sizes = {name: math.prod(shape) for name, shape in param_shapes(config).items()}


def count(*beginnings: str) -> int:
    return sum(size for name, size in sizes.items() if name.startswith(beginnings))


total = count("")
check("wte: 50257 · 768", count("wte"), "38,597,376")
check("wpe: 1024 · 768", count("wpe"), "786,432")
check("attention of a block: 4 (768 · 768 + 768)", count("h.0.attn"), "2,362,368")
check("FFN of a block: 768 · 3072 + 3072 + 3072 · 768 + 768", count("h.0.mlp"), "4,722,432")
check("two LayerNorms of a block: 2 · 2 · 768", count("h.0.ln"), "3,072")
check("a block", count("h.0."), "7,087,872")
check("12 blocks", count("h."), "85,054,464")
check("ln_f: 2 · 768", count("ln_f"), "1,536")
check("lm_head, shared with wte", count("lm_head"), "0")
check("total", total, "124,439,808")
check("share of the token embedding in the model", 100 * count("wte") / total, "31.0", "%")
check("share of both embeddings", 100 * count("wte", "wpe") / total, "31.6", "%")
check("share of the FFN in a block", 100 * count("h.0.mlp") / count("h.0."), "66.6", "%")
weightless = {
    name: np.broadcast_to(np.float32(0), shape) for name, shape in param_shapes(config).items()
}
gpt2 = GPT2(config, weightless)
check("model.num_params()", gpt2.num_params(), "124,439,808")
check(
    "model.num_params(embeddings=False): nanoGPT's, without wpe",
    gpt2.num_params(embeddings=False),
    "123,653,376",
)
