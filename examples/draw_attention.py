"""Pictures of attention: weight tables of heads (article 7.1), and why √d (7.4)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from plots import BLUE, GREY, ORANGE, caption, drawable, numbers_of, pyplot

from npgpt.ops.scores import scale_forward, scores_forward
from npgpt.ops.softmax import softmax_backward, softmax_forward

KEYS, ROWS = 8, 2000


def weight_table(
    ax: Any,
    title: str,
    table: np.ndarray,
    looking: list[str],
    looked_at: list[str],
    fontsize: float = 10,
) -> Any:
    """One table [T, S]: dark is much weight; a tenth and more as number too."""
    image = ax.imshow(table, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    tick = {"parse_math": False, "fontsize": fontsize}
    ax.set_xticks(range(len(looked_at)), map(drawable, looked_at), rotation=90, **tick)
    ax.set_yticks(range(len(looking)), map(drawable, looking), **tick)
    ax.set_title(drawable(title), parse_math=False)
    ax.tick_params(length=0)
    for i, j in np.argwhere(np.ma.filled(table, 0) >= 0.1):
        cell = {"color": "white" if table[i, j] > 0.55 else "black", "fontsize": 0.7 * fontsize}
        ax.text(j, i, f"{100 * table[i, j]:.0f}", ha="center", va="center", **cell)
    return image


def colour_bar(figure: Any, image: Any, axes: Any) -> None:
    label = caption("weight (the numbers are hundredths)", "权重（格中的数以百分之一计）")
    figure.colorbar(image, ax=axes, shrink=0.7, label=label)


def heads(panels: list[tuple[str, np.ndarray]], names: list[str]) -> Any:
    """Weight tables of a causal model beside each other; what the mask hides stays white."""
    plt, T = pyplot(), len(names)
    size = min(max(3.5, 0.36 * T + 1.2), 14)
    figure, axes = plt.subplots(
        1, len(panels), figsize=(size * len(panels), size), squeeze=False, layout="constrained"
    )
    for ax, (title, table) in zip(axes[0], panels, strict=True):
        seen = np.ma.masked_where(np.triu(np.ones((T, T), bool), 1), table)
        image = weight_table(ax, title, seen, names, names, min(10, 50 * size / T))
        ax.set_xlabel(caption("is looked at (key)", "被看的 token（key）"))
        ax.set_ylabel(caption("looks (query)", "在看的 token（query）"))
    colour_bar(figure, image, axes)
    return figure


def largest_weights(d: int, divisor: float) -> np.ndarray:
    """The largest of 8 attention weights, for random q and k of d numbers: [2000]."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((ROWS, 1, d)), rng.standard_normal((ROWS, KEYS, d))
    scores = scale_forward(scores_forward(q, k)[0], divisor=divisor)[0]
    return softmax_forward(scores, axis=-1)[0].max(axis=-1).ravel()


def scaling() -> Any:
    """How wide the scores are, what softmax makes of them, and what slope is left."""
    figure, (wide, share, slope) = pyplot().subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    measured = numbers_of("ch07_scaling").MEASURED
    depths = list(measured)
    before, after = zip(*measured.values(), strict=True)
    undivided, divided = "q · k", "q · k / √d"
    wide.plot(depths, np.sqrt(depths), color=GREY, linestyle=":", label="√d")
    wide.plot(depths, before, "o", color=ORANGE, label=undivided)
    wide.plot(depths, after, "o", color=BLUE, label=divided)
    wide.set(
        title=caption("the scores get wider, like √d", "分数越来越散，像 √d 那样"),
        ylabel=caption("standard deviation of a score", "分数的标准差"),
        yscale="log",
    )
    wide.set_yticks([1, 2, 8, 32], ["1", "2", "8", "32"])
    for label, colour, root in ((undivided, ORANGE, False), (divided, BLUE, True)):
        weights = [largest_weights(d, math.sqrt(d) if root else 1.0) for d in depths]
        share.plot(depths, np.mean(weights, axis=1), "o-", color=colour, label=label)
    share.axhline(
        1 / KEYS, color=GREY, linestyle=":", label=caption("all alike: 1/8", "平均分：1/8")
    )
    share.set(
        title=caption("undivided, one of 8 takes all", "不除，8 个里一个独占"),
        ylabel=caption("largest of 8 weights, mean", "8 个权重中最大的，平均"),
        ylim=(0, 1.05),
    )
    for ax in (wide, share):
        ax.set(xlabel=caption("d, numbers in q and in k", "d：q 与 k 的维数"), xscale="log")
        ax.set_xticks(depths, map(str, depths))
        ax.minorticks_off()
        ax.legend()
    draw_slope(slope)
    return figure


def draw_slope(ax: Any) -> None:
    """∂p_1/∂s_1 by how far two scores are apart, with the article's two points."""

    def of(apart: np.ndarray) -> np.ndarray:
        scores = np.stack([apart, np.zeros_like(apart)], axis=-1)
        _, saved = softmax_forward(scores, axis=-1)
        return softmax_backward(np.broadcast_to([1.0, 0.0], scores.shape), saved)[..., 0]

    apart = np.linspace(0, 12, 200)
    ax.plot(apart, of(apart), color=GREY)
    ten = np.array(10.0)
    for at, colour, name, digits in (
        (ten, ORANGE, "softmax([10, 0])", 5),
        (scale_forward(ten, divisor=math.sqrt(128))[0], BLUE, "softmax([10, 0] / √128)", 2),
    ):
        ax.plot(at, of(at), "o", color=colour, label=f"{name}: {of(at):.{digits}f}")
    ax.set(
        title=caption("and little is left to learn from", "而且几乎学不动"),
        xlabel=caption("s₁ − s₂, how far two scores are apart", "s₁ − s₂：两个分数相差多少"),
        ylabel=caption("slope ∂p₁/∂s₁ = p₁ (1 − p₁)", "梯度 ∂p₁/∂s₁ = p₁ (1 − p₁)"),
    )
    ax.legend()
