"""What LayerNorm is for: the scale of what a sublayer reads (article 9.2).

Without it scores grow with the trunk until softmax knows one token only. With it only ratios count,
so that the first FFN of a trained model may write many times what it reads.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
from any_model import Opened, open_model, options
from show import claim, heading, say

from npgpt.cli import left, run
from npgpt.layers.feed_forward import feed_forward_forward
from npgpt.layers.self_attention import self_attention_forward
from npgpt.models.common import Pass, of
from npgpt.models.gpt2.model import GPT2, block_forward
from npgpt.ops.cross_entropy import cross_entropy_forward
from npgpt.ops.layer_norm import layer_norm_forward
from npgpt.ops.lm_head import lm_head_forward
from npgpt.ops.mask import causal_mask

T, D, H, L = 16, 64, 4, 12
MASK = causal_mask(T, T)


def through_blocks(*, normed: bool) -> list[tuple[float, float, float]]:
    """Of each of L fresh blocks: size of trunk and of scores, mean of each row's largest weight."""
    rng, found = np.random.default_rng(0), []
    x = rng.standard_normal((T, D))

    def read(x: np.ndarray) -> np.ndarray:
        return layer_norm_forward(x, np.ones(D), np.zeros(D), eps=1e-5)[0] if normed else x

    def weights(m: int, n: int) -> list[np.ndarray]:
        return [rng.normal(0, m**-0.5, (m, n)), np.zeros(n)]

    settings = {"n_head": H, "divisor": math.sqrt(D // H), "mask": MASK}
    for _ in range(L):
        attention, ffn = (
            [*weights(D, 3 * D), *weights(D, D)],
            [*weights(D, 4 * D), *weights(4 * D, D)],
        )
        correction, saved = self_attention_forward(read(x), *attention, **settings)
        q, k = saved.heads.scores
        scores = (q @ k.swapaxes(-1, -2) / settings["divisor"])[..., MASK]
        found.append((x.std(), scores.std(), saved.probs[:, 1:].max(axis=-1).mean()))
        x = x + correction
        x = x + feed_forward_forward(read(x), *ffn, activation="gelu_new")[0]
    return found


def scores_run_away() -> None:
    """9.2: the same blocks with LayerNorm before each sublayer and without."""
    heading(
        "9.2", say(f"{L} fresh blocks: attention's scores", f"{L} 层新的 block：attention 的分数")
    )
    found = through_blocks(normed=True), through_blocks(normed=False)
    with_, without = say("with LayerNorm ", "有 LayerNorm   "), say("without", "没有")
    print(f"           {with_}            {without}")
    words = say("trunk   scores  weight", "主干     分数    权重")
    print(say("  block     ", "  层         ") + words + "      " + words)
    for n, rows in enumerate(zip(*found, strict=True)):
        print(f"  {n:5}" + " ".join("{:9.1f}{:9.1f}{:8.2f}".format(*row) for row in rows))
    print(
        say(
            "  scores: standard deviation; weight: the largest of a row, on average",
            "  分数：标准差；权重：一行里最大的那个，取平均",
        )
    )
    claims(*(np.array(rows) for rows in found))


def claims(normed: np.ndarray, bare: np.ndarray) -> None:
    """What the table shows: columns trunk, scores, weight."""
    low, high = normed[:, 1].min(), normed[:, 1].max()
    claim(
        say(
            f"with: scores stay between {low:.1f} and {high:.1f}",
            f"有：分数一直在 {low:.1f} 与 {high:.1f} 之间",
        ),
        high < 2 * low,
    )
    trunk, scores = bare[-1, 0] / bare[0, 0], bare[-1, 1] / bare[0, 1]
    claim(
        say(
            f"without: the trunk grows {trunk:.0f}-fold, scores {scores:.0f}-fold, like its square",
            f"没有：主干大了 {trunk:.0f} 倍，分数大了 {scores:.0f} 倍，按平方长",
        ),
        scores > 20 and 0.3 < scores / trunk**2 < 3,
    )
    claim(
        say(
            "so softmax saturates, as in 7.4: every row knows one token only",
            "于是 softmax 饱和（七.4）：每行只剩一个 token",
        ),
        bare[-1, 2] > 0.99 and normed[-1, 2] < 0.5,
    )


def loss_behind_block_0(model: GPT2, trunk: np.ndarray, targets: np.ndarray) -> float:
    """The loss where this is what block 0 leaves."""
    config, params, T = model.config, model.params, len(trunk)
    for n in range(1, config.n_layer):
        trunk, _ = block_forward(trunk, params, n, config, causal_mask(T, T), Pass())
    trunk, _ = layer_norm_forward(trunk, *of(params, "ln_f"), eps=config.layer_norm_epsilon)
    table = params.get("lm_head.weight", params[GPT2.TABLE])
    return float(cross_entropy_forward(lm_head_forward(trunk, table)[0], targets)[0])


def first_ffn(opened: Opened, text: str) -> None:
    """9.1, 9.2: take terms of the trunk out behind block 0, and see what the model loses."""
    ids, stations = np.array(opened.tokenizer.encode(text)), {}
    opened.model.forward(ids[:-1], observe=stations.__setitem__)
    embed, attn, mlp = (stations[name] for name in ("embed", "h.0.attn", "h.0.mlp"))
    size, written = (np.linalg.norm(x, axis=-1).mean() for x in (embed + attn, mlp))
    times = written / size
    what = say(
        f"the first FFN writes {times:.1f} times what it reads",
        f"第一个 FFN 写的是所读的 {times:.1f} 倍",
    )
    heading("9.2", f"{opened.name}: {what}")
    trunks = {
        say("all that block 0 leaves", "第 0 层留下的全部"): embed + attn + mlp,
        say("without the embedding", "去掉 embedding"): attn + mlp,
        say("without the first FFN's", "去掉第一个 FFN 写的"): embed + attn,
    }
    losses = [loss_behind_block_0(opened.model, trunk, ids[1:]) for trunk in trunks.values()]
    for name, value in zip(trunks, losses, strict=True):
        print(f"  {left(name, 30)} loss {value:6.3f}")
    if times > 10:
        claim(
            say(
                "it rewrites the token: from here on the embedding is not needed",
                "它把 token 重写了一遍：从这里起用不着原来的 embedding",
            ),
            abs(losses[1] - losses[0]) < 0.05 * (losses[2] - losses[0]),
        )
        print(
            say(
                "  It may: whoever reads divides by the size.", "  可以这样：每个读者都先除以尺度。"
            )
        )


def main(argv: Sequence[str]) -> int:
    args = options(__doc__).parse_args(argv)
    opened = open_model(args.model)
    scores_run_away()
    first_ffn(opened, args.text)
    return 0


if __name__ == "__main__":
    sys.exit(run("ch09_scale.py", main))
