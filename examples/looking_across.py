"""Where a decoder looks in the source while it writes: cross-attention as numbers and picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from number_words import chinese, english, source_ids, target_ids
from plots import drawable, pyplot, save
from show import say

from npgpt.models.transformer.model import Transformer

VALUES = dict(zip("零一二三四五六七八九十百千万", [*range(10), 10, 100, 1000, 10_000], strict=True))


def cross_attention(model: Transformer, n: int) -> tuple[np.ndarray, list[str], list[str]]:
    """Weight tables [H, T, S] of the last decoder layer, the target's and the source's tokens."""
    source, target = source_ids(n, with_and=False), target_ids(n)
    saved = model.forward(source, model.shifted_right(np.array(target))).saved
    tables = saved.decoder.layers[-1].encoder_attn.probs
    return tables, [*chinese(n), "<end>"], [*english(n), "<end>"]


def label(english: str, chinese: str) -> str:
    """The one that this run speaks; English where no font has the Chinese glyphs."""
    spoken = say(english, chinese)
    return spoken if drawable(spoken) == spoken else english


def plot(path: Path, tables: np.ndarray, written: list[str], words: list[str]) -> None:
    """A panel for the mean of all heads, one for each head; a tenth and more as number too."""
    plt = pyplot()
    heads = ((label(f"head {h}", f"头 {h}"), table) for h, table in enumerate(tables))
    panels = [(label("mean", "平均"), tables.mean(axis=0)), *heads]
    size = (3.1 * len(panels), 4.2)
    figure, axes = plt.subplots(1, len(panels), figsize=size, sharey=True, layout="constrained")
    for ax, (title, table) in zip(axes, panels, strict=True):
        image = ax.imshow(table, vmin=0, vmax=1, cmap="Blues", aspect="auto")
        ax.set_xticks(range(len(words)), words, rotation=90)
        ax.set(title=title, xlabel=label("source: looked at", "源句：看向哪里"))
        ax.tick_params(length=0)
        for i, j in np.argwhere(table >= 0.1):
            cell = {"color": "white" if table[i, j] > 0.55 else "black", "fontsize": "xx-small"}
            ax.text(j, i, f"{100 * table[i, j]:.0f}", ha="center", va="center", **cell)
    glosses = [f"{drawable(char)}  {VALUES.get(char, '')}" for char in written]
    axes[0].set_yticks(range(len(written)), glosses)
    axes[0].set_ylabel(label("target: about to be written", "目标句：将要写的"))
    weight = label("weight (the numbers are hundredths)", "注意力权重（格中是百分数）")
    figure.colorbar(image, ax=axes, shrink=0.7, label=weight)
    save(figure, path)
