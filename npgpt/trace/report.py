"""What `python -m npgpt.trace` prints: five sections of at most 100 columns, or one JSON object."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npgpt.cli import cut, filled, left, right, table, width, wrapped
from npgpt.text.labels import Label
from npgpt.trace.lens import Correction, Observed, Trace

COLUMNS = 100
# At most, and fewer where names and numbers are long:
CHANGED = 2  # how many positions are named where the stream changed most
GUESSES = 5  # tokens on a line
PUSHED = 3  # tokens that a neuron pushes up, and down
TOKEN, PLACE = 8, 12  # columns for a token, for a position and its token
# Of a table of attention weights:
ROWS = 16  # where it is shown in part
LABEL = 12  # columns for a row's token
CELL = 5  # columns for a weight, and at most 9 where there is room for longer tokens

KEYS = {"logit_lens": "guesses", "sink_heads": "resting_heads"}  # fields with another name in JSON


def as_json(value: Any, label: Label) -> Any:
    """A trace, or a part of one, for `json.dumps`; a record has its fields but those of None.

    Ids have their labels beside them. What JSON has no number for (NaN, infinity) is null.
    """
    if hasattr(value, "_asdict"):
        fields = value._asdict()
        if "id" in fields:
            fields = {"id": fields["id"], "label": label(fields["id"]), **fields}
        return {KEYS.get(k, k): as_json(v, label) for k, v in fields.items() if v is not None}
    if isinstance(value, list):
        return [as_json(item, label) for item in value]
    if isinstance(value, np.ndarray):
        return as_json(value.tolist(), label)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_text(t: Trace, seen: Observed, label: Label) -> str:
    """The sections: the text, the residual stream, the logit lens, a head, neurons of an FFN."""
    labels = [label(token) for token in seen.ids]
    sections = [_title(t, labels), _stream(t, seen, labels), _logit_lens(t, seen, label)]
    return "\n\n".join([*sections, _head(t, seen, labels), _ffn(t, seen, labels, label)])


def _title(t: Trace, labels: list[str]) -> str:
    p, T = t.position, len(labels)
    tokens = f"{T} token{'s' * (T > 1)}"
    first = f"{t.model} ({t.dtype}), {tokens}; the way of position {p}, {labels[p]}"
    words = [f"{i} {text}" for i, text in enumerate(labels)]
    words[p] = f"[{words[p]}]"
    lines = filled(words, COLUMNS)
    at = next(n for n, line in enumerate(lines) if words[p] in line)
    begin, end = max(0, at - 3), at + 2
    shown = ["  ".join(line) for line in lines[begin:end]]
    text = [cut(t.text, COLUMNS)] if t.text else []
    return "\n".join([first, *text, *["…"] * (begin > 0), *shown, *["…"] * (end < len(lines))])


def _stream(t: Trace, seen: Observed, labels: list[str]) -> str:
    """The residual stream and its corrections (article 9.1)."""
    p, view = t.position, seen.view

    def row(station: str, stream: str = "", added: str = "", *more: str) -> list[str]:
        ratio, changed = more or ("", "")
        return [station, str(t.shapes[station]), stream, added, ratio, changed]

    def norm(station: str) -> str:
        return f"{np.linalg.norm(seen.stations[station][p]):.2f}"

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
        cells += [row("embed", "", norm("embed")), *(correction(c, most) for c in t.corrections)]
        cells += [row(last, norm(last)), row(view.norm, norm(view.norm)), row("logits")]
        return table(cells, "llrrrl")

    last = view.block_station(view.n_layer - 1)
    title = f"The residual stream at position {p}, in norms: what is there, what is added to it."
    return f"{title}\n{_fitting(whole, CHANGED)}\n{_verdict(t)}"


def _verdict(t: Trace) -> str:
    ratios = [c.ratio_at_position for c in t.corrections]
    blocks = len(ratios) // 2
    large = [c.station for c in t.corrections if not c.ratio_at_position < 1]
    text = (
        f"{len(ratios)} corrections in {blocks} block{'s' * (blocks > 1)}, "
        f"{len(ratios) - len(large)} smaller than the stream they are added to"
    )
    if large:
        text += f" (not {', '.join(large)})"
    text += f"; median ratio {np.median(ratios):.2f}."
    if t.rotary_angles is not None:
        text += (
            " There is no position in embed: queries and keys are turned in every attention, at "
            f"position {t.position} the {len(t.rotary_angles)} pairs of coordinates of a head by "
            f"{t.rotary_angles.max():.4g} … {t.rotary_angles.min():.2g} radians."
        )
    return wrapped(text, COLUMNS)


def _logit_lens(t: Trace, seen: Observed, label: Label) -> str:
    """The stream read by the last norm and lm_head at every stage."""

    def whole(most: int) -> str:
        cells = [["after", "rank", "p", "likeliest", *[""] * (most - 1)]]
        for row in t.logit_lens:
            start = [row.station, f"{row.rank}", f"{row.probability:.3f}"]
            tokens = [f"{cut(label(token), TOKEN)} {p:.3f}" for token, p in row.likeliest]
            for i in range(0, len(tokens), most):
                line = tokens[i : i + most]
                cells.append([*start, *line, *[""] * (most - len(line))])
                start = [""] * 3
        return table(cells, "lrr" + "l" * most)

    what = "follows in the text" if t.target.follows_in_text else "is the likeliest in the end"
    title = (
        f"What would come next if the stream went to {seen.view.norm} and lm_head at once; rank "
        f'and p are those of "{label(t.target.id)}", which {what}.'
    )
    return f"{wrapped(title, COLUMNS)}\n{_fitting(whole, GUESSES)}"


def _head(t: Trace, seen: Observed, labels: list[str]) -> str:
    p, view, head, probs = t.position, seen.view, t.head, t.head.probs
    most = int(np.argmax(probs[p]))
    text = (
        f"{view.weights_station(head.layer)}[{head.head}], a weight table {[*probs.shape]}: "
        f"position {p} looks most at {most} {labels[most]}, {probs[p, most]:.2f}."
    )
    if head.head_chosen:
        among = "all heads" if head.layer_chosen else f"the {view.n_head} heads of this block"
        aside = ", the first and itself aside" if p > 1 else ""
        text += f" Of {among} this one has its largest weight{aside}."
    if len(shared := view.heads_that_share(head.head)) > 1:
        text += f" Heads {shared[0]} to {shared[-1]} look at the same keys and values."
    heads = view.n_layer * view.n_head
    text += f" Heads in which it gives the first token more than half: {t.sink_heads} of {heads}."
    return f"{wrapped(text, COLUMNS)}\n{attention_table(probs, labels, p, COLUMNS)}"


def _ffn(t: Trace, seen: Observed, labels: list[str], label: Label) -> str:
    """Columns of W_1 detect, rows of W_2 answer (article 8.3)."""
    view, layer, neurons = seen.view, *t.ffn
    factors = [] if neurons[0].gate is None else ["gate", "value"]
    F = len(view.neurons(seen.saved, layer).rows)
    title = (
        f"{view.block_station(layer)}.mlp, the strongest of its {F} neurons at "
        f"position {t.position}: {view.detects}. Active: {view.active}; "
        "answer: the norm of what it adds to the stream; up, down: what that adds to logits."
    )

    def whole(most: int) -> str:
        cells = [["neuron", *factors, "active", "answer", "most active at", "pushes", *[""] * most]]
        for n in neurons:
            at = [left(_place(n.most_at, labels), PLACE), f"{n.most:.2f}"]
            numbers = [f"{getattr(n, x):.2f}" for x in (*factors, "activation", "answer")]
            start = [f"{n.number}", *numbers, " ".join(at)]
            for direction, tokens in (("up", n.up), ("down", n.down)):
                pushed = [f"{cut(label(token), TOKEN)} {x:+.2f}" for token, x in tokens[:most]]
                cells.append([*start, direction, *pushed, *[""] * (most - len(pushed))])
                start = [""] * len(start)
        return table(cells, "r" * (3 + len(factors)) + "ll" + "l" * most)

    return f"{wrapped(title, COLUMNS)}\n{_fitting(whole, PUSHED)}"


def attention_table(probs: np.ndarray, labels: Sequence[str], position: int, columns: int) -> str:
    """A head's weights as text: row i says how much token i looks at each token (article 7.3).

    The row of `position` is marked. A table too wide for the terminal is shown in part: the rows
    up to that one, the columns with most of their weight, and what is left in a last column.

    Args:
        probs: [T, T]; rows sum to 1.
        labels: what the T tokens look like.
        columns: of the terminal.
    """
    T = len(labels)
    digits, longest = len(str(T - 1)), min(LABEL, max(map(width, labels)))
    room = columns - (digits + longest + 3)  # mark, position, space, label, space
    if room >= T * CELL:
        rows, keys, cell = list(range(T)), list(range(T)), min(room // T, max(CELL, longest + 1), 9)
    else:
        rows, cell = list(range(max(0, position - ROWS + 1), position + 1)), 7
        keys = _heaviest(probs[rows], room // cell - 1)
    heads = [[str(j) for j in keys], [cut(labels[j], cell - 1) for j in keys]]
    shown = [_cells(probs[i], i, keys) for i in rows]
    if len(keys) < T:
        heads = [[*heads[0], ""], [*heads[1], "rest"]]
        for i, cells in zip(rows, shown, strict=True):
            cells.append(_weight(float(np.delete(probs[i], keys).sum())))
    names = [
        f"{'>' * (i == position)}{i}".rjust(digits + 1)
        + f" {left(cut(labels[i], longest), longest)}"
        for i in rows
    ]
    lines = zip([" " * (columns - room - 1)] * 2 + names, heads + shown, strict=True)
    return "\n".join(
        (name + "".join(right(text, cell) for text in cells)).rstrip() for name, cells in lines
    )


def _heaviest(rows: np.ndarray, n: int) -> list[int]:
    """The n keys with most weight in these rows, in the order of the text."""
    return sorted(int(j) for j in np.argsort(-rows.sum(axis=0), kind="stable")[:n])


def _cells(row: np.ndarray, i: int, keys: Sequence[int]) -> list[str]:
    return [_weight(float(row[j])) if j <= i else "" for j in keys]


def _weight(weight: float) -> str:
    return "." if weight < 0.005 else f"{weight:.2f}"


def _fitting(whole: Callable[[int], str], most: int) -> str:
    """`whole(most)`: a table that names so many on a line, or as many fewer as make it fit."""
    shown = whole(most)
    if most > 1 and max(map(width, shown.splitlines())) > COLUMNS:
        return _fitting(whole, most - 1)
    return shown


def _place(i: int, labels: list[str]) -> str:
    return cut(f"{i} {labels[i]}", PLACE)
