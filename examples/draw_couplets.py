"""A head that looks into the line before: picture of two couplets (article 7.1, 7.6)."""

from __future__ import annotations

from typing import Any

from any_model import labels
from ch07_couplets import POEM, answers, strongest
from ch07_heatmap import weight_tables
from draw_attention import colour_bar, weight_table
from plots import caption, pyplot

import npgpt


def couplets(model_name: str = "weights/poems") -> Any:
    """Rows: the characters of the second line, as they are about to come; columns: the first."""
    model, tokenizer = npgpt.from_pretrained(model_name), npgpt.load_tokenizer(model_name)
    ids = tokenizer.encode(POEM)
    names, tables = labels(tokenizer, ids), weight_tables(model.forward(ids).saved)
    pairs = answers(names)
    n, h = strongest(tables, pairs)[0]
    figure, axes = pyplot().subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    for ax, lines in zip(axes, pairs.reshape(-1, 7, 2)[1:3], strict=True):
        i, j = lines.T
        table = tables[n, h][i[:, None], j]  # [7, 7]
        title = caption(f"block {n} head {h}", f"第 {n} 层第 {h} 头")
        image = weight_table(ax, title, table, [names[at + 1] for at in i], [names[at] for at in j])
        ax.tick_params(axis="x", rotation=0)
        ax.set_ylabel(caption("about to come", "正要写的字"))
        ax.set_xlabel(caption("is looked at, in the line before", "被看的字（上一句）"))
    colour_bar(figure, image, axes)
    return figure
