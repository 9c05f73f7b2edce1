"""Picture of the six steps of attention: each matrix beside its gradient (article 7.3)."""

from __future__ import annotations

from typing import Any

import numpy as np
from plots import caption, numbers_of, pyplot
from toy import NAMES

Named = tuple[str, np.ndarray]  # a formula and its matrix
Step = tuple[str, list[Named], str, list[Named], str]


def six_steps_rows() -> list[Step]:
    """Of each step: name, matrices and remark; gradients and remark. From the example itself."""
    s = numbers_of("ch07_attention_six_steps")
    dx = s.dx_q + s.dx_k + s.dx_v
    return [
        (
            caption("input", "输入"),
            [("x", s.X)],
            caption(
                "three tokens t0 t1 t2,\na row each, d = 4", "三个 token：t0 t1 t2\n每行一个，d = 4"
            ),
            [("dx = dQ W_Qᵀ + dK W_Kᵀ + dV W_Vᵀ", dx)],
            caption("x was read three times:\nthree sums meet", "x 被读了三次，\n三条路的梯度相加"),
        ),
        (
            caption("① project", "① 投影"),
            [("Q = x W_Q", s.Q), ("K = x W_K", s.K), ("V = x W_V", s.V)],
            "",
            [("dQ = dS K", s.dQ), ("dK = dSᵀ Q", s.dK), ("dV = Pᵀ dout", s.dV)],
            "",
        ),
        (
            caption("② score", "② 打分"),
            [("S = Q Kᵀ", s.S)],
            caption(
                "S_ij = q_i · k_j: how well\nk_j answers q_i",
                "S_ij = q_i · k_j：\n问题与答案对得上多少",
            ),
            [("dS = dscaled / √d", s.dS)],
            caption("divided by 2, as before", "前向除以 2，梯度也除以 2"),
        ),
        (
            caption("③ scale", "③ 缩放"),
            [("scaled = S / √d", s.scaled)],
            caption("d = 4: divide by 2", "d = 4，除以 2"),
            [("dscaled = dmasked where j ≤ i", s.dscaled)],
            caption("what the mask replaced\ngets nothing", "被 mask 换掉的\n没有梯度"),
        ),
        (
            caption("④ mask", "④ mask"),
            [("masked", s.masked)],
            caption("nobody looks to the right", "只能看左边"),
            [("dmasked = P (dP − Σ p dp)", s.dmasked)],
            caption(
                "a row of P sums to 1, so what\nall gain alike drops out",
                "P 每行和为 1：\n一起涨的那部分抵消",
            ),
        ),
        (
            "⑤ softmax",
            [("P = softmax(masked)", s.P)],
            caption("attention weights:\neach row sums to 1", "注意力权重：\n每行和为 1"),
            [("dP = dout Vᵀ", s.dP)],
            caption(
                "a product: each factor gets\ndout times the other",
                "乘积：每个因子得到\ndout 乘另一个因子",
            ),
        ),
        (
            caption("⑥ weighted\nsum", "⑥ 加权\n求和"),
            [("out = P V", s.out)],
            caption("t2 mixes all three,\nt0 has only itself", "t2 混合三个 token，\nt0 只有自己"),
            [("dout = ∂L/∂out", s.dout)],
            caption(
                "L: the sum of column 0.\nHere the way back begins",
                "L 取第 0 列之和，\n反向从这里开始",
            ),
        ),
    ]


def matrix(ax: Any, title: str, values: np.ndarray, digits: int, rows: list[str]) -> None:
    """Cells with their numbers; purple is positive, orange negative, grey −∞."""
    finite = np.where(np.isinf(values), 0, values)
    most = 2 * np.abs(finite).max()  # twice: the numbers stay readable on the darkest cell
    ax.imshow(finite, cmap="PuOr", vmin=-most, vmax=most, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        if np.isinf(value):
            ax.fill_between([j - 0.5, j + 0.5], i - 0.5, i + 0.5, color="lightgrey", linewidth=0)
        text = "−∞" if np.isinf(value) else f"{value + 0:.{0 if value == int(value) else digits}f}"
        ax.text(j, i, text, ha="center", va="center", fontsize=7.5)
    ax.set_title(title, fontsize=8.5, loc="left", pad=3)
    ax.set(xticks=[])
    ax.set_yticks(range(len(rows)), rows, fontsize=7.5, color="dimgrey")
    ax.tick_params(length=0, pad=2)
    ax.spines[:].set_visible(False)


def six_steps() -> Any:
    """Down the left side forward, up the right side backward."""
    rows = six_steps_rows()
    widths = [0.6, 1, 1, 1, 0.04, 1, 1, 1]
    figure, axes = pyplot().subplots(len(rows), 8, figsize=(12, 8.6), width_ratios=widths)
    figure.subplots_adjust(0.01, 0.02, 0.99, 0.89, wspace=0.07, hspace=0.42)
    for line, (name, forward, remark, backward, about_it) in zip(axes, rows, strict=True):
        for ax in line:
            ax.axis("off")
        line[0].text(0, 0.5, name, va="center", fontsize=10.5)
        for half, matrices, text, digits in (
            (line[1:4], forward, remark, 2),
            (line[5:], backward, about_it, 3),
        ):
            for ax, (title, values) in zip(half, matrices, strict=False):
                ax.axis("on")
                matrix(ax, title, values, digits, NAMES if ax is half[0] else [])
            half[1].text(0, 0.5, text, va="center", fontsize=9, color="dimgrey")
    for ax, english, chinese in (
        (axes[0, 1], "FORWARD, downward ↓", "前向，从上往下 ↓"),
        (axes[0, 5], "GRADIENT, upward ↑", "梯度，从下往上 ↑"),
    ):
        ax.text(0, 1.45, caption(english, chinese), transform=ax.transAxes, fontsize=11)
    return figure
