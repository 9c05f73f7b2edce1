"""Pictures of what goes in: words in wte (article 5.1), RoPE as turning arrows (6.2)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from any_model import Opened
from plots import BLUE, GREEN, GREY, ORANGE, caption, numbers_of, pyplot

from npgpt.ops.rope import default_frequencies, rope_forward, rotation
from npgpt.ops.scores import scores_forward

GROUPS = (
    (ORANGE, ["cat", "dog"]),
    (BLUE, ["mother", "father", "brother", "son", "daughter", "king"]),
    (GREEN, ["two", "three", "four", "five", "six", "seven"]),
    ("#6a51a3", ["red", "white", "black", "green", "blue"]),
    ("#a50f15", ["he", "she", "they", "we"]),
    (GREY, ["day", "night", "morning"]),
)


def words(opened: Opened) -> Any:
    """Rows of wte, of length 1, on the plane in which they differ most; None if untrained."""
    wte, rows, names, colours = opened.model.params["wte.weight"], [], [], []
    for colour, group in GROUPS:
        for word in group:
            token, *more = opened.tokenizer.encode(" " + word)
            if opened.trained and not more:
                rows.append(wte[token] / np.linalg.norm(wte[token]))
                names.append(word)
                colours.append(colour)
    if not rows:
        return None
    differences = np.array(rows) - np.mean(rows, axis=0)
    _, sizes, directions = np.linalg.svd(differences, full_matrices=False)
    held = (sizes[:2] ** 2).sum() / (sizes**2).sum()
    figure, ax = pyplot().subplots(figsize=(8.5, 6), layout="constrained")
    places = apart(differences @ directions[:2].T)
    ax.scatter(*places.T, s=0)  # so that the axes reach that far
    for name, colour, place in zip(names, colours, places, strict=True):
        ax.text(*place, name, color=colour, ha="center", va="center", fontsize=9)
    share = caption(
        f"the plane holds {held:.0%} of their differences; colours were chosen by hand",
        f"这个平面留住了差异的 {held:.0%}；颜色是事先按意思分的",
    )
    ax.set(xlabel=caption(f"first direction\n{share}", f"第一方向\n{share}"))
    ax.set(ylabel=caption("second direction", "第二方向"))
    ax.set_aspect("equal", "datalim")
    return figure


def apart(points: np.ndarray) -> np.ndarray:
    """The points, from below; where another word stands already, one is moved up."""
    size = np.array([0.09, 0.027])
    order, places = np.argsort(points[:, 1]), points.copy()
    for n, i in enumerate(order):
        for other in places[order[:n]]:
            if (np.abs(places[i] - other) < size).all():
                places[i, 1] = other[1] + size[1]
    return places


def turned(vector: tuple[float, ...], position: int, speed: float) -> np.ndarray:
    """A pair of numbers at a position, turned by rope_forward: [2]."""
    cos, sin = rotation(np.array([position]), np.array([speed]))
    return rope_forward(np.array([vector], float), cos=cos, sin=sin)[0][0]


def arrow(ax: Any, to: np.ndarray, colour: str, **style: Any) -> None:
    line = {"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0, **style}
    ax.annotate("", to, (0, 0), arrowprops=line)


def round_axes(ax: Any, radius: float) -> None:
    ax.set(xlim=(-radius, radius), ylim=(-radius, radius), xticks=[], yticks=[], aspect="equal")
    ax.spines[:].set_visible(False)
    ax.axhline(0, color="gainsboro", zorder=0)
    ax.axvline(0, color="gainsboro", zorder=0)


def rope() -> Any:
    """Above: the angle between q and k knows the distance only. Below: pairs turn at own speeds."""
    figure, axes = pyplot().subplots(2, 4, figsize=(11, 5.9), layout="constrained")
    vectors, step = numbers_of("ch06_position").vectors, math.radians(30)
    for ax, (m, n) in zip(axes[0], ((0, 2), (1, 3), (5, 7), (2, 0)), strict=True):
        round_axes(ax, 3.1)
        places = []
        for name, at, colour in (("猫", m, ORANGE), ("狗", n, BLUE)):
            arrow(ax, np.array(vectors[name]), "lightgrey", linewidth=1)
            places.append(turned(vectors[name], at, step))
            arrow(ax, places[-1], colour, linewidth=2)
            word = caption({"猫": "cat", "狗": "dog"}[name], name)
            beyond = places[-1] * (1 + 0.65 / np.linalg.norm(places[-1]))
            ax.text(*beyond, f"{word}@{at}", color=colour, ha="center", va="center")
        q, k = places
        score = scores_forward(q[None], k[None])[0].item()
        where = caption(
            f"dog two to the {'right' if n > m else 'left'}",
            f"狗在{'右' if n > m else '左'}边两格",
        )
        ax.set_title(f"q · k = {score:.3f}\n{where}")
    speeds = default_frequencies(128, 10_000.0)
    for ax, pair in zip(axes[1], (0, 8, 16, 32), strict=True):
        round_axes(ax, 1.3)
        for t in range(8):
            arrow(ax, turned((1, 0), t, speeds[pair]), GREEN, linewidth=1.2, alpha=0.25 + 0.1 * t)
            x, y = 1.15 * turned((1, 0), t, speeds[pair])
            if speeds[pair] > 0.2 or t == 7:
                ax.text(x, y, t, fontsize=8, color=GREY, ha="center", va="center")
        degrees = math.degrees(speeds[pair])
        ax.set_title(
            caption(
                f"pair {pair}: {degrees:.1f}° a position", f"第 {pair} 对：每个位置 {degrees:.1f}°"
            )
        )
    axes[0, 0].set_ylabel(caption("30° a position", "每个位置 30°"))
    axes[1, 0].set_ylabel(caption("a head of 128: positions 0 … 7", "128 维的头：位置 0 … 7"))
    return figure
