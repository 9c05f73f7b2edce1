"""Who looks where in an encoder-decoder that translates: weight tables, and their picture."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from draw_attention import colour_bar, weight_table
from number_words import VOCABULARY, chinese, english, source_ids, target_ids
from plots import caption, pyplot

from npgpt.models.transformer.model import Transformer

VALUES = dict(zip("零一二三四五六七八九十百千万", [*range(10), 10, 100, 1000, 10_000], strict=True))


class Looks(NamedTuple):
    """Weight tables of the last layers, mean over the heads; the tokens of rows and columns."""

    encoder: np.ndarray  # [S, S]
    decoder: np.ndarray  # [T, T]
    cross: np.ndarray  # [T, S]
    source: list[str]
    read: list[str]  # by the decoder: the target, shifted right
    written: list[str]


def looks(model: Transformer, n: int) -> Looks:
    """What the model looks at while it reads the words of n and writes its characters."""
    target = model.shifted_right(np.array(target_ids(n)))
    saved = model.forward(source_ids(n, with_and=False), target).saved
    encoder, decoder = saved.encoder.layers[-1], saved.decoder.layers[-1]
    each = (encoder.self_attn, decoder.self_attn, decoder.encoder_attn)
    tables = (attention.probs.mean(axis=0) for attention in each)
    read = [VOCABULARY[i] for i in target]
    return Looks(*tables, [*english(n), "<end>"], read, [*chinese(n), "<end>"])


def who_looks_where(model: Transformer, n: int) -> Any:
    """Encoder: all of the source. Decoder: to the left. Cross-attention: all of the source."""
    found = looks(model, n)
    read, written = (
        [f"{char} {VALUES.get(char, '')}".strip() for char in text]
        for text in (found.read, found.written)
    )
    seen = np.ma.masked_where(np.triu(np.ones_like(found.decoder, bool), 1), found.decoder)
    figure, axes = pyplot().subplots(1, 3, figsize=(14, 4.8), layout="constrained")
    source, target = caption("source", "源句"), caption("target", "目标")
    for ax, title, table, (looking, rows), (looked_at, columns) in (
        (
            axes[0],
            caption("encoder: sees the whole source", "encoder：看得到整句源文"),
            found.encoder,
            (source, found.source),
            (source, found.source),
        ),
        (
            axes[1],
            caption("decoder: sees what is written already", "decoder：只看得到已写出的"),
            seen,
            (target, read),
            (target, read),
        ),
        (
            axes[2],
            caption("cross-attention: from target to source", "cross-attention：目标看源句"),
            found.cross,
            (caption("about to be written", "正要写的"), written),
            (source, found.source),
        ),
    ):
        image = weight_table(ax, title, table, rows, columns)
        ax.set_ylabel(caption(f"looks: {looking}", f"在看：{looking}"))
        ax.set_xlabel(caption(f"is looked at: {looked_at}", f"被看：{looked_at}"))
    colour_bar(figure, image, axes)
    return figure
