"""Who looks at whom: the weight tables of a model, as numbers and as a picture (article 7.1).

Finds by itself the head that looks most at the previous token, and the head by which one token
looks most at another (--from it --to cat). --out FILE draws both, or --layer and --head, with
matplotlib (pip install "npgpt[plot]").
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from any_model import SENTENCE, labels, open_model, options, word_position
from plots import drawable, pyplot, save
from show import WIDTH, check, claim, heading, say

from npgpt.cli import run
from npgpt.trace.report import attention_table


def weight_tables(saved: Any) -> np.ndarray:
    """All of them: [L, H, T, T]."""
    return np.array([block.attn.probs for block in saved.blocks])


def previous_token_head(tables: np.ndarray) -> tuple[int, int, float]:
    """Block, head, and the mean weight that it puts on the token before."""
    previous = np.diagonal(tables, offset=-1, axis1=-2, axis2=-1).mean(axis=-1)  # [L, H]
    n, h = np.unravel_index(previous.argmax(), previous.shape)
    return int(n), int(h), float(previous[n, h])


def head_from_to(tables: np.ndarray, i: int, j: int) -> tuple[int, int, float]:
    """Block, head, and weight of the one by which token i looks most at token j."""
    weights = tables[:, :, i, j]
    n, h = np.unravel_index(weights.argmax(), weights.shape)
    return int(n), int(h), float(weights[n, h])


def control(tables: np.ndarray, n: int, h: int) -> None:
    """That a head looks at the token before, and not merely at what is near."""
    steps = [float(np.diagonal(tables[n, h], -back).mean()) for back in range(4)]
    alike = float(np.mean(1 / np.arange(2, tables.shape[-1] + 1)))
    found = "  ".join(f"{back}: {weight:.2f}" for back, weight in enumerate(steps))
    claim(
        say(
            f"block {n} head {h}, tokens back {found}; looking at all alike: {alike:.2f}",
            f"第 {n} 层第 {h} 头，往回几格 {found}；一视同仁：{alike:.2f}",
        ),
        steps[1] > 2 * max(alike, *steps[2:]) and steps[1] > steps[0],
    )


def draw(path: Path, panels: list[tuple[str, np.ndarray]], names: list[str]) -> None:
    """Weight tables beside each other: dark is much weight; a tenth and more as number too."""
    plt = pyplot()
    T, ticks = len(names), [drawable(name) for name in names]
    size = min(max(3.5, 0.36 * T + 1.2), 14)
    plt.rcParams["font.size"] = min(10, 50 * size / T)
    figure, axes = plt.subplots(
        1, len(panels), figsize=(size * len(panels), size), squeeze=False, layout="constrained"
    )
    for ax, (title, table) in zip(axes[0], panels, strict=True):
        image = ax.imshow(
            np.ma.masked_where(np.triu(np.ones((T, T), bool), 1), table),
            vmin=0,
            vmax=1,
            cmap="Blues",
        )
        ax.set_xticks(range(T), ticks, rotation=90, parse_math=False)
        ax.set_yticks(range(T), ticks, parse_math=False)
        ax.set(title=title, xlabel="looked at", ylabel="looks")
        ax.tick_params(length=0)
        for i, j in np.argwhere(table >= 0.1):
            cell = {"color": "white" if table[i, j] > 0.55 else "black", "fontsize": "x-small"}
            ax.text(j, i, f"{100 * table[i, j]:.0f}", ha="center", va="center", **cell)
    figure.colorbar(image, ax=axes, shrink=0.7, label="weight (the numbers are hundredths)")
    save(figure, path)


def main(argv: Sequence[str]) -> int:
    parser = options(__doc__)
    parser.add_argument("--from", dest="looks", default="it", help="the word that looks (it)")
    parser.add_argument("--to", default="cat", help="the word that is looked at (cat)")
    parser.add_argument("--layer", type=int, help="draw this block …")
    parser.add_argument("--head", type=int, help="… and this head")
    parser.add_argument("--out", type=Path, help="file of the picture, .png or .svg")
    args = parser.parse_args(argv)
    model, tokenizer, name, _ = open_model(args.model)
    ids = tokenizer.encode(args.text)
    names = labels(tokenizer, ids)
    tables = weight_tables(model.forward(ids).saved)
    L, H, T, _ = tables.shape

    heading("7.1", say(f"{name} reads {args.text!r}", f"{name} 读到 {args.text!r}"))
    blocks, heads = model.config.n_layer, model.config.n_head
    claim(
        say(
            f"{blocks} blocks x {heads} heads = {L * H} weight tables [T, T] = {[T, T]}",
            f"{blocks} 层 x {heads} 头 = {L * H} 张权重表 [T, T] = {[T, T]}",
        ),
        tables.shape == (blocks, heads, len(ids), len(ids)),
    )
    claim(say("all are lower triangular", "都是下三角形"), not np.triu(tables, 1).any())
    claim(say("each row sums to 1", "每行和为 1"), np.allclose(tables.sum(axis=-1), 1, atol=1e-5))

    n, h, weight = previous_token_head(tables)
    chosen = [(n, h, f"previous token, {weight:.2f}", f"看上一个 token，{weight:.2f}")]
    i, j = (word_position(tokenizer, ids, word) for word in (args.looks, args.to))
    if i is not None and j is not None:
        n, h, weight = head_from_to(tables, i, j)
        seen = f"{args.looks} looks at {args.to}, {weight:.2f}"
        chosen.append((n, h, seen, f"{args.looks} 看 {args.to}，{weight:.2f}"))
    if args.layer is not None or args.head is not None:
        chosen = [(args.layer or 0, args.head or 0, "as asked for", "指定的头")]
    for n, h, english, chinese in chosen:
        heading("7.1", say(f"block {n} head {h}: {english}", f"第 {n} 层第 {h} 头：{chinese}"))
        print(attention_table(tables[n, h], names, T - 1 if i is None else i, WIDTH))
    if name == "weights/tales" and args.text == SENTENCE:
        heading("7.1", say("the token before, not only one nearby", "看的是上一个，不只是附近的"))
        control(tables, *previous_token_head(tables)[:2])
    if model.config.n_layer == 12 and model.config.n_embd == 768 and args.text == SENTENCE:
        heading("7.1", say("the two heads of the article", "文章里的两个头"))
        check(
            say("block 4 head 3: it looks at cat", "第 4 层第 3 头：it 看 cat"),
            tables[4, 3, i, j],
            "0.84",
        )
        control(tables, 4, 11)
    if args.out is not None:
        draw(
            args.out,
            [(f"block {n} head {h}\n{what}", tables[n, h]) for n, h, what, _ in chosen],
            names,
        )
    return 0


if __name__ == "__main__":
    sys.exit(run("ch07_heatmap.py", main))
