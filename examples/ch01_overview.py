"""From token ids to the probability of the next one (article chapter 1).

Shows the shapes along the way, the sizes of GPT-2 small, and what Llama 3's configuration says of
its parameters. `python -m npgpt.describe MODEL` draws the whole structure from a configuration.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
from any_model import open_model, options
from show import check, claim, heading

from npgpt.cli import run
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.gpt2.model import GPT2
from npgpt.models.llama.config import LlamaConfig, param_shapes
from npgpt.ops.softmax import softmax_forward


def one_job(model: GPT2, ids: np.ndarray) -> None:
    """1.1: [T] -> [T, d] -> … -> [T, d] -> [T, V]."""
    heading("1.1", "one job: token ids in, a probability for each of the V tokens out")
    stations: dict[str, np.ndarray] = {"ids": ids}
    logits = model.forward(ids, observe=stations.__setitem__).logits
    probs, _ = softmax_forward(logits, axis=-1)
    n = model.config.n_layer
    trunk = ["embed", *(f"h.{i}{part}" for i in range(n) for part in (".attn", ".mlp", "")), "ln_f"]
    for name in ("ids", *trunk[:4], "…", *trunk[-4:], "logits"):
        print(f"  {name:10}", [*stations[name].shape] if name in stations else "")
    T, d, V = len(ids), model.config.n_embd, logits.shape[-1]
    every_one = all(stations[name].shape == (T, d) for name in trunk)
    claim(f"the embedding, {n} blocks of 2 corrections, ln_f: all are [T, d] = {[T, d]}", every_one)
    claim(f"lm_head turns that into [T, V] = {[T, V]}", logits.shape == (T, V))
    claim("the probabilities of each position sum to 1", np.allclose(probs.sum(axis=-1), 1))


def gpt2_small() -> None:
    """The sizes are the defaults of the configuration."""
    heading("1.1", "GPT-2 small, from its config.json")
    config = GPT2Config()
    check("vocab_size: V tokens", config.vocab_size, "50257")
    check("n_embd: d, numbers per token", config.n_embd, "768")
    check("n_layer: blocks", config.n_layer, "12")
    check("n_head: heads in each block", config.n_head, "12")
    check("d / n_head: numbers per head", config.n_embd / config.n_head, "64")
    check("n_positions: context", config.n_positions, "1024")
    check("n_inner, where null: 4 d, width of the FFN", config.ffn_width, "3072")


def llama_3() -> None:
    """1.2, 11.2: the same counting on two other configurations."""
    heading("1.2", "Llama 3, from its config.json: seven matrices a layer, two tables, no bias")
    V, counts = 128_256, {}
    for name, d, layers, kv_width, F in (
        ("8B", 4096, 32, 8 * 128, 14_336),
        ("70B", 8192, 80, 8 * 128, 28_672),
    ):
        attention = 2 * d * d + 2 * d * kv_width  # W_Q and W_O; W_K and W_V for 8 heads only
        mlp = 3 * d * F  # gate, up, down
        layer = attention + mlp
        total = layers * (layer + 2 * d) + d + 2 * V * d  # each RMSNorm has d numbers
        counts[name] = (layer, mlp, total, V * d)
        config = LlamaConfig(V, d, F, layers, d // 128, num_key_value_heads=8)
        counted = sum(math.prod(shape) for shape in param_shapes(config).values())
        claim(f"{name}: npgpt's Llama of these sizes has as many, {total:,}", counted == total)
    layer, mlp, total, embedding = counts["8B"]
    check("8B: parameters of one layer's matrices, millions", layer / 1e6, "218", "M")
    check("8B: their share in the MLP", 100 * mlp / layer, "81", "%")
    check(
        "8B: share of the embeddings, both tables (wte and the untied lm_head)",
        100 * 2 * embedding / total,
        "13",
        "%",
    )
    check("8B: share of one table", 100 * embedding / total, "6.5", "%")
    layer, mlp, total, embedding = counts["70B"]
    check("70B: share of the embeddings, both tables", 100 * 2 * embedding / total, "3.0", "%")
    check("70B: share of one table", 100 * embedding / total, "1.5", "%")
    print("  The article's 13 % counts both tables, its 1.5 % one. The share falls either way.")


def main(argv: Sequence[str]) -> int:
    args = options(__doc__).parse_args(argv)
    model, tokenizer, name, _ = open_model(args.model)
    print(f"{name} reads {args.text!r}")
    one_job(model, np.array(tokenizer.encode(args.text)))
    gpt2_small()
    llama_3()
    return 0


if __name__ == "__main__":
    sys.exit(run("ch01_overview.py", main))
