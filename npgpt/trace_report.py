"""What `python -m npgpt.trace` says: five sections of at most 100 columns.

Leaves out computing anything but what is the largest. Tokens are shown by their labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from npgpt.journey import Correction, Guess, Neuron, Pass
from npgpt.text_columns import cut, left, table, width
from npgpt.token_labels import Label
from npgpt.weight_table import weight_table

COLUMNS = 100
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
    lines = _filled(words, COLUMNS)
    at = next(n for n, line in enumerate(lines) if words[p] in line)
    begin, end = max(0, at - 3), at + 2
    shown = ["  ".join(line) for line in lines[begin:end]]
    text = [cut(j.text, COLUMNS)] if j.text else []
    return "\n".join([first, *text, *["…"] * (begin > 0), *shown, *["…"] * (end < len(lines))])


def _stream(j: Journey, labels: list[str]) -> str:
    """The residual stream and its corrections (article 9.1)."""
    p, stations = j.position, j.seen.stations

    def row(station: str, stream: str = "", added: str = "", *more: str) -> list[str]:
        ratio, changed = more or ("", "")
        return [station, str([*stations[station].shape]), stream, added, ratio, changed]

    def norm(station: str) -> str:
        return f"{np.linalg.norm(stations[station][p]):.2f}"

    cells = [["station", "shape", "stream", "added", "ratio", "where the ratio is largest"]]
    cells += [row("embed", "", norm("embed"))]
    for c in j.corrections:
        most = np.argsort(-c.ratio, kind="stable")[:CHANGED]
        named = [f"{left(_place(i, labels), PLACE)} {c.ratio[i]:.2f}" for i in most]
        numbers = [f"{x[p]:.2f}" for x in (c.stream, c.added, c.ratio)]
        cells.append(row(c.station, *numbers, "  ".join(named)))
    last = f"h.{j.seen.model.config.n_layer - 1}"
    cells += [row(last, norm(last)), row("ln_f", norm("ln_f")), row("logits")]
    title = f"The residual stream at position {p}, in norms: what is there, what is added to it."
    return f"{title}\n{table(cells, 'llrrrl')}\n{_verdict(j)}"


def _verdict(j: Journey) -> str:
    blocks = j.seen.model.config.n_layer
    ratios = np.array([c.ratio[j.position] for c in j.corrections])
    large = [c.station for c in j.corrections if not c.ratio[j.position] < 1]
    text = (
        f"{len(ratios)} corrections in {blocks} block{'s' * (blocks > 1)}, "
        f"{len(ratios) - len(large)} smaller than the stream they are added to"
    )
    if large:
        text += f" (not {', '.join(large)})"
    return _wrapped(f"{text}; median ratio {np.median(ratios):.2f}.")


def _guesses(j: Journey, label: Label) -> str:
    """The stream read through ln_f and lm_head at every stage."""
    cells = [["after", "rank", "p", "likeliest", *[""] * (GUESSES - 1)]]
    for guess in j.guesses:
        start = [guess.station, f"{guess.rank}", f"{guess.probability:.3f}"]
        tokens = [f"{cut(label(t), TOKEN)} {p:.3f}" for t, p in guess.likeliest]
        for i in range(0, len(tokens), GUESSES):
            line = tokens[i : i + GUESSES]
            cells.append([*start, *line, *[""] * (GUESSES - len(line))])
            start = [""] * 3
    what = "follows in the text" if j.follows else "is the likeliest in the end"
    title = (
        "What would come next if the stream went to ln_f and lm_head at once; rank and p are those "
        f'of "{label(j.target)}", which {what}.'
    )
    return f"{_wrapped(title)}\n{table(cells, 'lrr' + 'l' * GUESSES)}"


def _head(j: Journey, labels: list[str]) -> str:
    layer, head, head_chosen, layer_chosen = j.head
    p, config = j.position, j.seen.model.config
    station = f"h.{layer}.attn.probs"
    probs = j.seen.stations[station][head]
    most = int(np.argmax(probs[p]))
    text = (
        f"{station}[{head}], a weight table {[*probs.shape]}: position {p} looks most at "
        f"{most} {labels[most]}, {probs[p, most]:.2f}."
    )
    if head_chosen:
        among = "all heads" if layer_chosen else f"the {config.n_head} heads of this block"
        aside = ", the first and itself aside" if p > 1 else ""
        text += f" Of {among} this one has its largest weight{aside}."
    heads = config.n_layer * config.n_head
    text += f" Heads in which it gives the first token more than half: {j.resting} of {heads}."
    return f"{_wrapped(text)}\n{weight_table(probs, labels, p, COLUMNS)}"


def _ffn(j: Journey, labels: list[str], label: Label) -> str:
    """Columns of W_1 detect, rows of W_2 answer (article 8.3)."""
    title = (
        f"h.{j.ffn}.mlp, the strongest of its {j.seen.model.config.ffn_width} neurons at position "
        f"{j.position}: a column of W_1 detects, a row of W_2 answers. Active: the activation; "
        "answer: the norm of what it adds to the stream; up, down: what that adds to logits."
    )
    cells = [["neuron", "active", "answer", "most active at", "pushes", *[""] * PUSHED]]
    for n in j.neurons:
        most = [left(_place(n.most_at, labels), PLACE), f"{n.most:.2f}"]
        start = [f"{n.number}", f"{n.activation:.2f}", f"{n.answer:.2f}", " ".join(most)]
        for direction, tokens in (("up", n.up), ("down", n.down)):
            pushed = [f"{cut(label(t), TOKEN)} {x:+.2f}" for t, x in tokens[:PUSHED]]
            cells.append([*start, direction, *pushed, *[""] * (PUSHED - len(pushed))])
            start = [""] * 4
    return f"{_wrapped(title)}\n{table(cells, 'rrrll' + 'l' * PUSHED)}"


def _place(i: int, labels: list[str]) -> str:
    return cut(f"{i} {labels[i]}", PLACE)


def _wrapped(text: str) -> str:
    return "\n".join(" ".join(line) for line in _filled(text.split(), COLUMNS, gap=1))


def _filled(words: Sequence[str], columns: int, gap: int = 2) -> list[list[str]]:
    """Words in lines of at most so many columns."""
    lines: list[list[str]] = [[]]
    used = -gap
    for word in words:
        used += gap + width(word)
        if used > columns and lines[-1]:
            lines.append([])
            used = width(word)
        lines[-1].append(word)
    return lines
