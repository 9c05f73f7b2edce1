"""`--html FILE`: the report as one page that needs nothing else, with maps of what is wrong.

A map shows |Δ| of a station, dark where it is large, each shade a third of a power of ten. It is
drawn as SVG, one path for each shade; large arrays in blocks, each with its largest |Δ|.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from npgpt.compare.comparing import Comparison
from npgpt.compare.differences import OK, Difference
from npgpt.compare.report import (
    TokenText,
    cells_of,
    findings,
    heads,
    next_token,
    one_sided,
    other_side,
    patterns,
    tables,
    title,
    verdict,
)

ROWS, COLUMNS = 48, 96  # blocks of a map at most
SHADES = 9  # from the largest |Δ| down by a factor of 1000; below that nothing is drawn
NOT_FINITE = "#00f"  # the colour of NaN and infinity
STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; font: 13px monospace; margin: 1em 0 }
th, td { padding: 1px 10px; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
tr.wrong { background: #fdd }
.verdict { font-weight: bold; padding: .5em 1em; background: #dfd }
.verdict.wrong { background: #fdd }
pre { font: 13px monospace; white-space: pre-wrap }
svg { width: 100%; max-width: 60em; border: 1px solid #bbb; background: #fff; display: block }
figure { margin: 1.5em 0 }
"""


def as_page(comparison: Comparison, token_text: TokenText) -> str:
    """The page's text."""
    c = comparison
    said = f'<p class="verdict{"" if c.within else " wrong"}">{escape(verdict(c))}</p>'
    parts = [f"<h1>{escape(title(c.asked))}</h1>", said]
    parts += [_text("\n".join(lines)) for lines in findings(c)]
    parts += [_figure(name, apart) for name, apart in c.apart.items()]
    if c.logits is not None:
        parts.append(_text(next_token(c.asked, c.logits, token_text)))
    parts += [_table(head, rows, other_side(c.asked)) for head, rows in tables(c)]
    parts += [_text(f"{head}: {patterns(names)}") for head, names in one_sided(c)]
    style = f"<style>{STYLE}</style>"
    head = f'<meta charset="utf-8"><title>npgpt compare: {escape(c.asked.model)}</title>{style}'
    return "\n".join(["<!doctype html>", head, *parts, said]) + "\n"


def _text(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _table(head: str, rows: Sequence[Difference], other: str) -> str:
    lines = [_row("th", heads(head, other))]
    lines += [_row("td", cells_of(row), row.verdict != OK) for row in rows]
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def _row(tag: str, cells: Sequence[str], wrong: bool = False) -> str:
    inner = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
    return f"<tr{' class=wrong' if wrong else ''}>{inner}</tr>"


def _figure(name: str, apart: np.ndarray) -> str:
    """The map of one station."""
    with np.errstate(invalid="ignore"):
        size = np.abs(apart)
    largest = float(size[np.isfinite(size)].max(initial=0))
    shape = " × ".join(map(str, apart.shape)) or "a number"
    caption = f"{name}: |Δ|, {shape}, at most {largest:.1e}"
    if apart.ndim == 3:
        caption += "; the heads side by side"
    return f"<figure><figcaption>{escape(caption)}</figcaption>{heat_map(apart)}</figure>"


def heat_map(apart: np.ndarray) -> str:
    """|Δ| as SVG: rows of the array from top to bottom, of three axes the first from left to
    right."""
    blocks = pooled(flat(np.abs(apart)))
    shades = shades_of(blocks)
    paths = [
        f'<path fill="{_colour(shade)}" d="{_squares(shades == shade)}"/>'
        for shade in np.unique(shades)
        if shade
    ]
    rows, columns = blocks.shape
    view = f'viewBox="0 0 {columns} {rows}" preserveAspectRatio="none"'
    height = f'style="height: {max(2, min(rows, 30))}em"'
    return f"<svg {view} {height} shape-rendering=crispEdges>{''.join(paths)}</svg>"


def flat(array: np.ndarray) -> np.ndarray:
    """Two axes: a vector as one row, heads [H, T, S] side by side."""
    if array.ndim == 3:
        return np.concatenate([*array], axis=1)
    return array.reshape(-1, array.shape[-1] if array.ndim else 1)


def pooled(array: np.ndarray) -> np.ndarray:
    """The largest of each of at most ROWS × COLUMNS blocks; NaN counts as infinity."""
    array = np.where(np.isfinite(array), array, np.inf)
    for axis, most in ((0, ROWS), (1, COLUMNS)):
        n = array.shape[axis]
        starts = np.unique(np.arange(min(n, most)) * n // min(n, most))
        array = np.maximum.reduceat(array, starts, axis=axis)
    return array


def shades_of(blocks: np.ndarray) -> np.ndarray:
    """1 … SHADES by size, 0 for what is too small to draw, -1 for infinity."""
    finite = np.isfinite(blocks)
    largest = float(blocks[finite].max(initial=0))
    shades = np.where(finite, 0, -1)
    if largest > 0:
        drawn = finite & (blocks > largest * 1e-3)
        steps = np.log10(blocks[drawn] / largest) * SHADES / 3  # 0 down to -SHADES
        shades[drawn] = np.maximum(SHADES + np.ceil(steps), 1)
    return shades


def _colour(shade: int) -> str:
    if shade < 0:
        return NOT_FINITE
    pale = math.floor(230 * (1 - shade / SHADES))
    return f"rgb({255 - 80 * shade // SHADES},{pale},{pale})"


def _squares(where: np.ndarray) -> str:
    """A path with a strip of height 1 for every run of True in a row."""
    found = []
    for y, row in enumerate(where):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], row, [False]]).astype(np.int8)))
        found += [f"M{a} {y}h{b - a}v1h{a - b}z" for a, b in edges.reshape(-1, 2)]
    return "".join(found)
