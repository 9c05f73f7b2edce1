"""A block, twelve of them, and 124 million parameters (article chapter 11).

`python -m npgpt.describe gpt2` prints the same count for any configuration, with shapes and FLOPs;
with --mermaid it draws any architecture.
"""

from __future__ import annotations

import math

import numpy as np
from any_model import random_model
from show import check, claim, heading, say

from npgpt.describe.mermaid import mermaid
from npgpt.layers.feed_forward import feed_forward_forward
from npgpt.layers.self_attention import self_attention_forward
from npgpt.models.common import Pass, of
from npgpt.models.gpt2.config import GPT2Config, param_shapes
from npgpt.models.gpt2.model import GPT2, block_forward
from npgpt.ops.layer_norm import layer_norm_forward
from npgpt.ops.mask import causal_mask

# English, Chinese, how the names begin, the article's number.
COUNTS = (
    ("wte: 50257 · 768", "词表 wte：50257 · 768", "wte", "38,597,376"),
    ("wpe: 1024 · 768", "位置表 wpe：1024 · 768", "wpe", "786,432"),
    (
        "attention of a block: 4 (768² + 768)",
        "一层的 attention：4 (768² + 768)",
        "h.0.attn",
        "2,362,368",
    ),
    (
        "FFN of a block: 2 · 768 · 3072 + 3072 + 768",
        "一层的 FFN：2 · 768 · 3072 + 3072 + 768",
        "h.0.mlp",
        "4,722,432",
    ),
    (
        "two LayerNorms of a block: 2 · 2 · 768",
        "一层的两个 LayerNorm：2 · 2 · 768",
        "h.0.ln",
        "3,072",
    ),
    ("a block", "一个 block", "h.0.", "7,087,872"),
    ("12 blocks", "12 个 block", "h.", "85,054,464"),
    ("ln_f: 2 · 768", "最后的 ln_f：2 · 768", "ln_f", "1,536"),
    ("lm_head, shared with wte", "lm_head，与 wte 共享", "lm_head", "0"),
    ("total", "总计", "", "124,439,808"),
)


def diagram() -> None:
    """11.1: the block of GPT-2 small, from its configuration."""
    heading(
        "11.1",
        say(
            "a block: read LayerNorm(x), add to x, twice; [T, d] stays [T, d]",
            "一个 block：读 LayerNorm(x)，加回 x，两次；[T, d] 还是 [T, d]",
        ),
    )
    _, _, block = mermaid(GPT2Config()).partition("    subgraph")
    print(f"\nflowchart TB\n    subgraph{block.partition('end')[0]}end\n")


def by_hand() -> None:
    """11.1: nanoGPT's two lines, and block after block."""
    model, T = random_model(), 5
    params, config, mask = model.params, model.config, causal_mask(T, T)
    d, H = config.n_embd, config.n_head
    x = np.random.default_rng(0).standard_normal((T, d))

    def ln(name: str, x: np.ndarray) -> np.ndarray:
        return layer_norm_forward(x, *of(params, f"h.0.{name}"), eps=config.layer_norm_epsilon)[0]

    def attn(x: np.ndarray) -> np.ndarray:
        weights = of(params, "h.0.attn.c_attn", "h.0.attn.c_proj")
        settings = {"n_head": H, "divisor": math.sqrt(d // H), "mask": mask}
        return self_attention_forward(x, *weights, **settings)[0]

    def mlp(x: np.ndarray) -> np.ndarray:
        weights = of(params, "h.0.mlp.c_fc", "h.0.mlp.c_proj")
        return feed_forward_forward(x, *weights, activation="gelu_new")[0]

    by_block, _ = block_forward(x, params, 0, config, mask, Pass())
    by_lines = x + attn(ln("ln_1", x))
    by_lines = by_lines + mlp(ln("ln_2", by_lines))
    claim(
        say(
            "x = x + attn(ln_1(x)); x = x + mlp(ln_2(x)) is the block",
            "x = x + attn(ln_1(x)); x = x + mlp(ln_2(x)) 就是这个 block",
        ),
        np.allclose(by_block, by_lines),
    )
    stream, shapes = x, set()
    for n in range(config.n_layer):
        stream, _ = block_forward(stream, params, n, config, mask, Pass())
        shapes.add(stream.shape)
    claim(
        say(
            f"{config.n_layer} of them: [T, d] = {[*x.shape]} before and after each",
            f"叠 {config.n_layer} 个：每个前后都是 [T, d] = {[*x.shape]}",
        ),
        shapes == {x.shape},
    )


def counted() -> None:
    """11.2: GPT-2 small, every parameter."""
    heading("11.2", say("GPT-2 small, every parameter", "GPT-2 small 的每个参数"))
    sizes = {name: math.prod(shape) for name, shape in param_shapes(GPT2Config()).items()}

    def count(*beginnings: str) -> int:
        return sum(size for name, size in sizes.items() if name.startswith(beginnings))

    for english, chinese, beginning, printed in COUNTS:
        check(say(english, chinese), count(beginning), printed)
    wte, both, ffn = count("wte"), count("wte", "wpe"), count("h.0.mlp")
    check(say("share of wte in the model", "wte 占全模型"), 100 * wte / count(""), "31.0", "%")
    check(say("share of wte and wpe", "wte 与 wpe 占全模型"), 100 * both / count(""), "31.6", "%")
    check(say("share of the FFN in a block", "FFN 占一层"), 100 * ffn / count("h.0."), "66.6", "%")


def num_params() -> None:
    """11.2: the same from a model, and nanoGPT's count."""
    zero, shapes = np.float32(0), param_shapes(GPT2Config())
    weightless = {name: np.broadcast_to(zero, shape) for name, shape in shapes.items()}
    gpt2 = GPT2(GPT2Config(), weightless)
    check(
        say("all: model.num_params()", "全部：model.num_params()"), gpt2.num_params(), "124,439,808"
    )
    nano = say("nanoGPT's, without wpe", "nanoGPT 的数法，不计 wpe")
    without = gpt2.num_params(embeddings=False)
    check(f"model.num_params(embeddings=False): {nano}", without, "123,653,376")


diagram()
by_hand()
counted()
num_params()
