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
from draw_attention import heads
from plots import caption, save
from show import WIDTH, check, claim, heading, say

from npgpt.cli import run
from npgpt.trace.report import attention_table

Chosen = tuple[int, int, tuple[str, str]]  # block, head, what it does in English and Chinese


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


def chosen_heads(
    tables: np.ndarray, i: int | None, j: int | None, words: tuple[str, str] = ("it", "cat")
) -> list[Chosen]:
    """The head for the previous token; and, given the positions of two words, the one for them."""
    n, h, weight = previous_token_head(tables)
    chosen = [(n, h, (f"previous token, {weight:.2f}", f"看上一个 token，{weight:.2f}"))]
    if i is not None and j is not None:
        n, h, weight = head_from_to(tables, i, j)
        looks, to = words
        what = f"{looks} looks at {to}, {weight:.2f}", f"{looks} 看 {to}，{weight:.2f}"
        chosen.append((n, h, what))
    return chosen


def panels(tables: np.ndarray, chosen: list[Chosen]) -> list[tuple[str, np.ndarray]]:
    """Title and weight table of each, for a picture."""
    return [
        (caption(f"block {n} head {h}\n{what}", f"第 {n} 层第 {h} 头\n{chinese}"), tables[n, h])
        for n, h, (what, chinese) in chosen
    ]


def why_not(text: str, words: tuple[str, str], i: int | None, j: int | None) -> str:
    """A sentence if the first word cannot look at the second, else nothing."""
    for word, position in zip(words, (i, j), strict=True):
        if position is None:
            return say(
                f"There is no word {word!r} in {text!r}; name others with --from and --to.",
                f"{text!r} 里没有 {word!r} 这个词；请用 --from 和 --to 另指。",
            )
    if i is not None and j is not None and i < j:
        looks, to = words
        return say(
            f"{looks!r} stands before {to!r}, and no token sees what comes later.",
            f"{looks!r} 在 {to!r} 之前，而 token 看不到后面的。",
        )
    return ""


def main(argv: Sequence[str]) -> int:
    parser = options(__doc__)
    parser.add_argument("--from", dest="looks", help="the word that looks (it)")
    parser.add_argument("--to", help="the word that is looked at (cat)")
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
    blocks, n_head = model.config.n_layer, model.config.n_head
    claim(
        say(
            f"{blocks} blocks x {n_head} heads = {L * H} weight tables [T, T] = {[T, T]}",
            f"{blocks} 层 x {n_head} 头 = {L * H} 张权重表 [T, T] = {[T, T]}",
        ),
        tables.shape == (blocks, n_head, len(ids), len(ids)),
    )
    claim(say("all are lower triangular", "都是下三角形"), not np.triu(tables, 1).any())
    claim(say("each row sums to 1", "每行和为 1"), np.allclose(tables.sum(axis=-1), 1, atol=1e-5))

    words = args.looks or "it", args.to or "cat"
    i, j = (word_position(tokenizer, ids, word) for word in words)
    if reason := why_not(args.text, words, i, j):
        if args.looks or args.to:
            raise ValueError(reason)
        print(f"  {reason}")
        i = j = None
    chosen = chosen_heads(tables, i, j, words)
    if args.layer is not None or args.head is not None:
        n, h = args.layer or 0, args.head or 0
        if not (0 <= n < L and 0 <= h < H):
            raise ValueError(f"There is no block {n} head {h}: {L} blocks have {H} heads each.")
        chosen = [(n, h, ("as asked for", "按指定"))]
    for n, h, what in chosen:
        heading("7.1", say(f"block {n} head {h}: {what[0]}", f"第 {n} 层第 {h} 头：{what[1]}"))
        print(attention_table(tables[n, h], names, T - 1 if i is None else i, WIDTH))
    if name == "weights/tales" and args.text == SENTENCE:
        heading("7.1", say("the token before, not only one nearby", "看的是上一个，不只是附近的"))
        control(tables, *previous_token_head(tables)[:2])
    is_small = (model.config.n_layer, model.config.n_embd) == (12, 768)  # GPT-2 small
    if is_small and (args.text, *words) == (SENTENCE, "it", "cat"):
        heading("7.1", say("the two heads of the article", "文章里的两个头"))
        check(
            say("block 4 head 3: it looks at cat", "第 4 层第 3 头：it 看 cat"),
            tables[4, 3, i, j],
            "0.84",
        )
        control(tables, 4, 11)
    if args.out is not None:
        save(heads(panels(tables, chosen), names), args.out)
    return 0


if __name__ == "__main__":
    sys.exit(run("ch07_heatmap.py", main))
