"""What `python -m npgpt.trace` says: five sections of at most 100 columns.

Leaves out computing anything but what is the largest. Tokens are shown by their labels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from npgpt.cli import cut, filled, left, table, width, wrapped
from npgpt.text.labels import Label
from npgpt.trace.journey import Correction, Guess, Neuron, Pass, block_station, weight_station
from npgpt.trace.journey_parts import heads_that_share
from npgpt.trace.weight_table import weight_table

COLUMNS = 100
# At most, and fewer where names and numbers are long:
CHANGED = 2  # how many positions are named where the stream changed most
GUESSES = 5  # tokens on a line
PUSHED = 3  # tokens that a neuron pushes up, and down
TOKEN, PLACE = 8, 12  # columns for a token, for a position and its token


class HeadTable(NamedTuple):
    """Which weight table is shown, and whether head and layer were chosen rather than given."""

    layer: int
    head: int
    head_chosen: bool
    layer_chosen: bool


class Journey(NamedTuple):
    """Everything there is to say about one position of one text."""

    model: str
    dtype: str
    text: str  # "" without a vocabulary
    seen: Pass
    position: int
    target: int  # the token that follows in the text, or else the model's own answer
    follows: bool
    corrections: list[Correction]
    angles: np.ndarray  # by which each pair of a query and key is turned here [d_h/2], or [0]
    guesses: list[Guess]
    head: HeadTable
    resting: int
    ffn: int
    neurons: list[Neuron]


def as_text(j: Journey, label: Label) -> str:
    """Everything for a reader."""
    labels = [label(token) for token in j.seen.ids]
    return "\n\n".join(
        [
            _title(j, labels),
            _stream(j, labels),
            _guesses(j, label),
            _head(j, labels),
            _ffn(j, labels, label),
        ]
    )


def _title(j: Journey, labels: list[str]) -> str:
    p, T = j.position, len(labels)
    tokens = f"{T} token{'s' * (T > 1)}"
    first = f"{j.model} ({j.dtype}), {tokens}; the way of position {p}, {labels[p]}"
    words = [f"{i} {text}" for i, text in enumerate(labels)]
    words[p] = f"[{words[p]}]"
    lines = filled(words, COLUMNS)
    at = next(n for n, line in enumerate(lines) if words[p] in line)
    begin, end = max(0, at - 3), at + 2
    shown = ["  ".join(line) for line in lines[begin:end]]
    text = [cut(j.text, COLUMNS)] if j.text else []
    return "\n".join([first, *text, *["…"] * (begin > 0), *shown, *["…"] * (end < len(lines))])


def _stream(j: Journey, labels: list[str]) -> str:
    """The residual stream and its corrections (article 9.1)."""
    p, stations, parts = j.position, j.seen.stations, j.seen.parts

    def row(station: str, stream: str = "", added: str = "", *more: str) -> list[str]:
        ratio, changed = more or ("", "")
        return [station, str([*stations[station].shape]), stream, added, ratio, changed]

    def norm(station: str) -> str:
        return f"{np.linalg.norm(stations[station][p]):.2f}"

    def correction(c: Correction, most: int) -> list[str]:
        named = [
            f"{left(_place(i, labels), PLACE)} {c.ratio[i]:.2f}"
            for i in np.argsort(-c.ratio, kind="stable")[:most]
        ]
        return row(
            c.station, *(f"{x[p]:.2f}" for x in (c.stream, c.added, c.ratio)), "  ".join(named)
        )

    def whole(most: int) -> str:
        cells = [["station", "shape", "stream", "added", "ratio", "where the ratio is largest"]]
        cells += [row("embed", "", norm("embed")), *(correction(c, most) for c in j.corrections)]
        cells += [row(last, norm(last)), row(parts.norm, norm(parts.norm)), row("logits")]
        return table(cells, "llrrrl")

    last = block_station(parts, parts.n_layer - 1)
    title = f"The residual stream at position {p}, in norms: what is there, what is added to it."
    return f"{title}\n{_fitting(whole, CHANGED)}\n{_verdict(j)}"


def _verdict(j: Journey) -> str:
    blocks = j.seen.parts.n_layer
    ratios = np.array([c.ratio[j.position] for c in j.corrections])
    large = [c.station for c in j.corrections if not c.ratio[j.position] < 1]
    text = (
        f"{len(ratios)} corrections in {blocks} block{'s' * (blocks > 1)}, "
        f"{len(ratios) - len(large)} smaller than the stream they are added to"
    )
    if large:
        text += f" (not {', '.join(large)})"
    text += f"; median ratio {np.median(ratios):.2f}."
    return wrapped(text + _turned(j.angles, j.position), COLUMNS)


def _turned(angles: np.ndarray, position: int) -> str:
    if not len(angles):
        return ""
    return (
        f" There is no position in embed: queries and keys are turned in every attention, at "
        f"position {position} the {len(angles)} pairs of coordinates of a head by "
        f"{angles.max():.4g} … {angles.min():.2g} radians."
    )


def _guesses(j: Journey, label: Label) -> str:
    """The stream read through the last norm and lm_head at every stage."""

    def whole(most: int) -> str:
        cells = [["after", "rank", "p", "likeliest", *[""] * (most - 1)]]
        for guess in j.guesses:
            start = [guess.station, f"{guess.rank}", f"{guess.probability:.3f}"]
            tokens = [f"{cut(label(t), TOKEN)} {p:.3f}" for t, p in guess.likeliest]
            for i in range(0, len(tokens), most):
                line = tokens[i : i + most]
                cells.append([*start, *line, *[""] * (most - len(line))])
                start = [""] * 3
        return table(cells, "lrr" + "l" * most)

    what = "follows in the text" if j.follows else "is the likeliest in the end"
    title = (
        f"What would come next if the stream went to {j.seen.parts.norm} and lm_head at once; rank "
        f'and p are those of "{label(j.target)}", which {what}.'
    )
    return f"{wrapped(title, COLUMNS)}\n{_fitting(whole, GUESSES)}"


def _head(j: Journey, labels: list[str]) -> str:
    layer, head, head_chosen, layer_chosen = j.head
    p, parts = j.position, j.seen.parts
    station = weight_station(parts, layer)
    probs = j.seen.stations[station][head]
    most = int(np.argmax(probs[p]))
    text = (
        f"{station}[{head}], a weight table {[*probs.shape]}: position {p} looks most at "
        f"{most} {labels[most]}, {probs[p, most]:.2f}."
    )
    if head_chosen:
        among = "all heads" if layer_chosen else f"the {parts.n_head} heads of this block"
        aside = ", the first and itself aside" if p > 1 else ""
        text += f" Of {among} this one has its largest weight{aside}."
    if len(shared := heads_that_share(parts, head)) > 1:
        text += f" Heads {shared[0]} to {shared[-1]} look at the same keys and values."
    heads = parts.n_layer * parts.n_head
    text += f" Heads in which it gives the first token more than half: {j.resting} of {heads}."
    return f"{wrapped(text, COLUMNS)}\n{weight_table(probs, labels, p, COLUMNS)}"


def _ffn(j: Journey, labels: list[str], label: Label) -> str:
    """Columns of W_1 detect, rows of W_2 answer (article 8.3)."""
    parts, factors = j.seen.parts, [*j.neurons[0].factors]
    title = (
        f"{block_station(parts, j.ffn)}.mlp, the strongest of its {parts.ffn_width} neurons at "
        f"position {j.position}: {parts.detects}. Active: {parts.active}; "
        "answer: the norm of what it adds to the stream; up, down: what that adds to logits."
    )

    def whole(most: int) -> str:
        cells = [["neuron", *factors, "active", "answer", "most active at", "pushes", *[""] * most]]
        for n in j.neurons:
            at = [left(_place(n.most_at, labels), PLACE), f"{n.most:.2f}"]
            numbers = [f"{x:.2f}" for x in (*n.factors.values(), n.activation, n.answer)]
            start = [f"{n.number}", *numbers, " ".join(at)]
            for direction, tokens in (("up", n.up), ("down", n.down)):
                pushed = [f"{cut(label(t), TOKEN)} {x:+.2f}" for t, x in tokens[:most]]
                cells.append([*start, direction, *pushed, *[""] * (most - len(pushed))])
                start = [""] * len(start)
        return table(cells, "r" * (3 + len(factors)) + "ll" + "l" * most)

    return f"{wrapped(title, COLUMNS)}\n{_fitting(whole, PUSHED)}"


def _fitting(whole: Callable[[int], str], most: int) -> str:
    """A table that names so many on a line, or as many fewer as make it fit."""
    shown = whole(most)
    if most > 1 and max(map(width, shown.splitlines())) > COLUMNS:
        return _fitting(whole, most - 1)
    return shown


def _place(i: int, labels: list[str]) -> str:
    return cut(f"{i} {labels[i]}", PLACE)
