"""Picture of where the parameters are: three models as stacked bars (article 11.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
from any_model import Opened
from plots import caption, pyplot

from npgpt.describe.architectures import PRESETS, llama_lines
from npgpt.describe.gpt2 import LINES
from npgpt.describe.tables import Line, parameter_lines, total_of
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.gpt2.config import param_shapes as gpt2_shapes

Bar = tuple[str, list[float]]  # name and size of a model, shares of its five parts
COLOURS = ("#08519c", "#6baed6", "#fd8d3c", "#d94801", "#6a51a3")


def shares(lines: list[Line], layers: int, *names: str) -> list[float]:
    """Shares in the model of those lines; what is in a block counts `layers` times."""
    by_name = {line.name: line for line in lines}
    each = [by_name[name] for name in names]
    return [line.share * (layers if line.depth else 1) for line in each]


def bars(opened: Opened) -> list[Bar]:
    """GPT-2 small, the opened model, Llama-3-8B: what `npgpt describe` counts."""
    found = []
    for name, config in (("GPT-2 small", GPT2Config()), (opened.name, opened.model.config)):
        lines = parameter_lines(gpt2_shapes(config), LINES, ("h.0.",))
        parts = ("wte", "wpe", "attention", "FFN", "lm_head")
        found.append((titled(name, lines), shares(lines, config.n_layer, *parts)))
    llama = PRESETS["llama-3-8b"]
    lines = llama_lines(llama)
    table, *rest = shares(
        lines, llama.num_hidden_layers, "embed_tokens", "attention", "MLP", "lm_head"
    )
    return [*found, (titled("Llama-3-8B", lines), [table, 0, *rest])]


def titled(name: str, lines: list[Line]) -> str:
    return f"{name}\n{total_of(lines):,}"


def parameters(opened: Opened) -> Any:
    """A bar for each model, all as long: 100 %."""
    figure, ax = pyplot().subplots(figsize=(9.5, 3.4), layout="constrained")
    names, each = zip(*bars(opened), strict=True)
    kinds = (
        caption("token table", "词表 wte"),
        caption("position table", "位置表 wpe"),
        "attention",
        "FFN / MLP",
        caption("lm_head of its own", "独立的 lm_head"),
    )
    left = np.zeros(len(names))
    for kind, colour, column in zip(kinds, COLOURS, np.transpose(each), strict=True):
        ax.barh(names, column, left=left, color=colour, label=kind)
        for row, share in enumerate(column):
            if share > 0.04:
                cell = {"ha": "center", "va": "center", "color": "white", "fontsize": 8.5}
                ax.text(left[row] + share / 2, row, f"{share:.1%}", **cell)
        left += column
    ax.invert_yaxis()
    rest = caption("the norms are too few to be seen", "归一化的参数太少，看不见")
    ax.set(
        xlim=(0, 1),
        xlabel=caption(f"share of all parameters ({rest})", f"占全部参数的比例（{rest}）"),
    )
    ax.xaxis.set_major_formatter("{x:.0%}")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=5, fontsize=8.5)
    return figure
