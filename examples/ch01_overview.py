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
from show import check, claim, heading, say

from npgpt.cli import run
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.gpt2.model import GPT2
from npgpt.models.llama.config import LlamaConfig, param_shapes
from npgpt.ops.softmax import softmax_forward


def one_job(model: GPT2, ids: np.ndarray) -> None:
    """1.1: [T] -> [T, d] -> … -> [T, d] -> [T, V]."""
    heading(
        "1.1",
        say(
            "one job: token ids in, a probability for each of the V tokens out",
            "只做一件事：token 编号进，词表上 V 个概率出",
        ),
    )
    stations: dict[str, np.ndarray] = {"ids": ids}
    logits = model.forward(ids, observe=stations.__setitem__).logits
    probs, _ = softmax_forward(logits, axis=-1)
    n = model.config.n_layer
    trunk = ["embed", *(f"h.{i}{part}" for i in range(n) for part in (".attn", ".mlp", "")), "ln_f"]
    for name in ("ids", *trunk[:4], "…", *trunk[-4:], "logits"):
        print(f"  {name:10}", [*stations[name].shape] if name in stations else "")
    T, d, V = len(ids), model.config.n_embd, model.config.vocab_size
    claim(
        say(
            f"the embedding, {n} blocks of 2 corrections, ln_f: all are [T, d] = {[T, d]}",
            f"embedding、{n} 个 block 各 2 次修正、ln_f：全是 [T, d] = {[T, d]}",
        ),
        all(stations[name].shape == (T, d) for name in trunk),
    )
    claim(
        say(f"lm_head turns that into [T, V] = {[T, V]}", f"lm_head 把它变成 [T, V] = {[T, V]}"),
        logits.shape == (T, V),
    )
    claim(
        say("the probabilities of each position sum to 1", "每个位置的概率之和为 1"),
        np.allclose(probs.sum(axis=-1), 1),
    )


def gpt2_small() -> None:
    """The sizes are the defaults of the configuration."""
    heading("1.1", say("GPT-2 small, from its config.json", "GPT-2 small 的 config.json"))
    config = GPT2Config()
    check(say("vocab_size: V tokens", "vocab_size：词表大小 V"), config.vocab_size, "50257")
    check(say("n_embd: d, numbers per token", "n_embd：隐藏维度 d"), config.n_embd, "768")
    check(say("n_layer: blocks", "n_layer：block 数"), config.n_layer, "12")
    check(say("n_head: heads in each block", "n_head：每个 block 的头数"), config.n_head, "12")
    d_h = config.n_embd / config.n_head
    check(say("d / n_head: numbers per head", "d / n_head：每个头的维度"), d_h, "64")
    check(say("n_positions: context", "n_positions：上下文长度"), config.n_positions, "1024")
    width = say("n_inner, where null: 4 d, width of the FFN", "n_inner，空则为 4 d：FFN 的宽度")
    check(width, config.ffn_width, "3072")


def count(d: int, layers: int, F: int) -> tuple[int, int, int, int]:
    """Parameters of a layer's matrices, of those in its MLP, of one table, of a whole Llama 3."""
    config = LlamaConfig(128_256, d, F, layers, d // 128, num_key_value_heads=8)
    sizes = {name: math.prod(shape) for name, shape in param_shapes(config).items()}
    first = {name: n for name, n in sizes.items() if name.startswith("layers.0.")}
    mlp = sum(n for name, n in first.items() if ".mlp." in name)
    attention = sum(n for name, n in first.items() if ".self_attn." in name)
    return mlp + attention, mlp, sizes["embed_tokens.weight"], sum(sizes.values())


def llama_3() -> None:
    """1.2, 11.2: the same counting on two other configurations."""
    heading(
        "1.2",
        say(
            "Llama 3, from its config.json: seven matrices a layer, two tables, no bias",
            "Llama 3 的 config.json：一层七个权重矩阵，两张表，没有 bias",
        ),
    )
    both = say("share of the embeddings, both tables", "embedding 占比，两张表都算")
    one = say("share of one table", "只算一张表的占比")
    layer, mlp, table, total = count(4096, 32, 14_336)
    by_hand = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14_336
    claim(
        say(
            f"8B: W_Q, W_O 2 · 4096²; W_K, W_V 2 · 4096 · 1024; MLP 3 · 4096 · 14336: {layer:,}",
            f"8B：W_Q、W_O 2 · 4096²；W_K、W_V 2 · 4096 · 1024；MLP 3 · 4096 · 14336：共 {layer:,}",
        ),
        layer == by_hand,
    )
    check(say("8B: one layer, in millions", "8B：一层，以百万计"), layer / 1e6, "218", "M")
    check(say("8B: its share in the MLP", "8B：其中 MLP 占"), 100 * mlp / layer, "81", "%")
    check(say("8B: all parameters", "8B：全部参数"), total, "8,030,261,248")
    check(f"8B{say(': ', '：')}{both}", 100 * 2 * table / total, "13", "%")
    check(f"8B{say(': ', '：')}{one}", 100 * table / total, "6.5", "%")
    _, _, table, total = count(8192, 80, 28_672)
    check(say("70B: all parameters", "70B：全部参数"), total, "70,553,706,496")
    check(f"70B{say(': ', '：')}{both}", 100 * 2 * table / total, "3.0", "%")
    check(f"70B{say(': ', '：')}{one}", 100 * table / total, "1.5", "%")
    print(
        say(
            "  The article's 13 % counts both tables, its 1.5 % one. The share falls either way.",
            "  文中的 13 % 算了两张表，1.5 % 只算一张；无论怎么算，模型越大占比越小。",
        )
    )


def main(argv: Sequence[str]) -> int:
    args = options(__doc__).parse_args(argv)
    model, tokenizer, name, _ = open_model(args.model)
    print(say(f"{name} reads {args.text!r}", f"{name} 读 {args.text!r}"))
    one_job(model, np.array(tokenizer.encode(args.text)))
    gpt2_small()
    llama_3()
    return 0


if __name__ == "__main__":
    sys.exit(run("ch01_overview.py", main))
