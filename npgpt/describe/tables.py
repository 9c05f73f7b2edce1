"""What `npgpt.describe` says alike of every model but GPT-2: parameters by name, shares, memory.

Leaves out what is an architecture's own: its title, which lines its table has, what it caches
(`describe_llama.py`, `describe_bert.py`, `describe_transformer.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from npgpt.cli import table

Beginnings = str | tuple[str, ...]  # of the names of parameters, as `str.startswith` takes them
Wanted = tuple[int, str, Beginnings]  # a line: its depth, what is said, what it counts


class Line(NamedTuple):
    """A line of the parameter table; shares are fractions, of the model and of a block."""

    depth: int
    name: str
    parameters: int
    share: float
    of_block: float | None


def parameter_lines(
    shapes: Mapping[str, tuple[int, ...]],
    wanted: Sequence[Wanted],
    blocks: tuple[str, ...],
    whole: Beginnings = "",
) -> list[Line]:
    """The parameter table, counted from a model's `param_shapes`; biases go with their matrices.

    Args:
        wanted: its lines in order.
        blocks: how the names of a block begin, "layers.0." for instance, which is like all others.
            A line whose names begin so has a share of that block.
        whole: the parameters that are 100 % of the model; "" are all.
    """
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}

    def size(beginnings: Beginnings) -> int:
        return sum(n for name, n in sizes.items() if name.startswith(beginnings))

    total = size(whole)
    lines = []
    for depth, name, beginnings in wanted:
        first = beginnings if isinstance(beginnings, str) else beginnings[0]
        block = next((size(block) for block in blocks if first.startswith(block)), None)
        n = size(beginnings)
        lines.append(Line(depth, name, n, n / total, None if block is None else n / block))
    return lines


def by_path(lines: Sequence[Line]) -> list[Line]:
    """The same lines, each named after those it is part of as well: `a layer/attention/W_Q`."""
    renamed: list[Line] = []
    path: list[str] = []
    for line in lines:
        path = [*path[: line.depth], line.name]
        renamed.append(line._replace(name="/".join(path)))
    return renamed


def as_text(
    title: str, lines: Sequence[Line], below: str, memory: Mapping[str, int], block: str = "block"
) -> str:
    """Everything for a reader: title, parameter table, what the memory is for, memory in bytes."""
    cells = [("parameters", "number", "of the model", f"of a {block}")]
    for line in lines:
        of_block = "" if line.of_block is None else f"{100 * line.of_block:.1f} %"
        share = f"{100 * line.share:.1f} %"
        cells.append((2 * line.depth * " " + line.name, f"{line.parameters:,}", share, of_block))
    rows = [("memory", "bytes"), *((name, f"{size:,}") for name, size in memory.items())]
    return "\n\n".join([title, table(cells, "lrrr"), below, table(rows, "lr")])


def as_object(
    about: Mapping[str, Any], lines: Sequence[Line], memory: Mapping[str, int]
) -> dict[str, Any]:
    """The same for `--json`; `about` says which model, and for how many tokens."""
    return {
        **about,
        "parameters": {line.name: line.parameters for line in lines},
        "share_of_model": {line.name: line.share for line in lines},
        "share_of_block": {ln.name: ln.of_block for ln in lines if ln.of_block is not None},
        "memory_bytes": dict(memory),
    }


def texts(batch: int, each: int) -> str:
    """How many texts, and how large a number is."""
    return f"{several(batch, 'text')}, {each} bytes a number."


def several(n: int, what: str) -> str:
    """1 head, 2 heads."""
    return f"{n} {what}{'s' * (n > 1)}"


def total_of(lines: Sequence[Line]) -> int:
    """The parameters of the line called total."""
    return next(line.parameters for line in lines if line.name == "total")
