"""Pictures of a block: GELU and its slope (article 8.1), the residual stream (9.1)."""

from __future__ import annotations

from typing import Any

import numpy as np
from any_model import Opened
from ch09_residual_layernorm import corrections
from plots import BLUE, GREY, ORANGE, caption, pyplot

from npgpt.ops.activation import ACTIVATIONS


def value_and_slope(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What forward makes of x, and what backward makes of ones."""
    forward, backward = ACTIVATIONS[name]
    y, saved = forward(x)
    return y, backward(np.ones_like(x), saved)


def gelu() -> Any:
    """GELU and ReLU, and their slopes."""
    figure, axes = pyplot().subplots(1, 2, figsize=(9.5, 3.9), layout="constrained")
    x = np.linspace(-4, 4, 802)  # 0 is not among them: ReLU's slope jumps there
    for name, title, colour in (("relu", "ReLU", GREY), ("gelu_new", "GELU", BLUE)):
        for ax, y in zip(axes, value_and_slope(name, x), strict=True):
            ax.plot(x, y, color=colour, label=title)
    marks = np.array([-1.0, 0, 1])
    for ax, y in zip(axes, value_and_slope("gelu_new", marks), strict=True):
        ax.plot(marks, y, "o", color=BLUE, markersize=4)
        beside = {"xytext": (8, -14), "textcoords": "offset points", "fontsize": 9}
        for point in zip(marks, y, strict=True):
            paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            ax.annotate(f"{point[1]:.3f}", point, **beside, bbox=paper)
        ax.set(xlabel="x")
        ax.axhline(0, color="gainsboro", zorder=0)
        ax.axvline(0, color="gainsboro", zorder=0)
        ax.legend()
    axes[0].set(title=caption("value", "取值"), ylabel="y", ylim=(-0.7, 4.2))
    slope = caption("slope: what backward multiplies by", "斜率：反向时乘的数")
    axes[1].set(title=slope, ylabel="dy/dx", ylim=(-0.25, 1.25))
    return figure


def residual(opened: Opened, text: str) -> Any:
    """Each correction measured by the trunk that it is added to; below it the trunk itself."""
    rows = corrections(opened, text)
    names, trunk, correction = zip(*rows, strict=True)
    x, ratios = np.arange(len(rows)), np.divide(correction, trunk)
    figure, (above, below) = pyplot().subplots(
        *(2, 1),
        figsize=(max(7, 0.36 * len(rows) + 2), 5.6),
        sharex=True,
        height_ratios=[3, 1.3],
        layout="constrained",
    )
    for part, label, colour in (("attn", "attention", BLUE), ("mlp", "FFN", ORANGE)):
        its = [name.endswith(part) for name in names]
        above.vlines(x[its], 1, ratios[its], color=colour, linewidth=3)
        above.plot(x[its], ratios[its], "o", color=colour, label=label)
    for at, ratio in enumerate(ratios):
        side = (
            {"xytext": (0, 6), "va": "bottom"} if ratio >= 1 else {"xytext": (0, -6), "va": "top"}
        )
        number = {"textcoords": "offset points", "ha": "center", "fontsize": 8, **side}
        above.annotate(f"{ratio:.2g}", (at, ratio), **number)
    above.axhline(1, color=GREY, linewidth=1)
    above.set(yscale="log", ylim=(min(ratios.min(), 0.1) / 2, 2 * max(ratios.max(), 10)))
    above.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
    above.minorticks_off()
    above.set_ylabel(caption("‖correction‖ / ‖trunk‖", "‖修正量‖ / ‖主干‖"))
    above.set_title(
        caption(
            "a dot: the correction as a multiple of the trunk; at 1 both are alike",
            "一个点：修正量是主干的几倍；在 1 处一样大",
        )
    )
    above.legend(loc="upper right")
    below.plot(x, trunk, "o-", color="black", markersize=4)
    below.set(ylabel=caption("‖trunk‖", "‖主干‖"), ylim=(0, None))
    below.set_xlabel(
        caption(
            "the sublayer that reads the trunk; norms are means over the tokens",
            "读主干的子层；范数是对所有 token 的平均",
        )
    )
    below.set_xticks(x, names, rotation=90)
    return figure
