"""What the description of every architecture is made of: sections, parameter table, memory."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from npgpt.cli import table

BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}

Beginnings = str | tuple[str, ...]  # of the names of parameters, as `str.startswith` takes them
Wanted = tuple[int, str, Beginnings]  # a line of the parameter table: depth, name, what it counts


class Setting(NamedTuple):
    """Which model, and what its costs are for: `batch` texts of `tokens`, numbers of `dtype`.

    `source` is the number of tokens that the encoder of an encoder-decoder reads.
    """

    model: str
    tokens: int
    source: int
    batch: int
    dtype: str

    @property
    def bytes_each(self) -> int:
        """The size of a number."""
        return BYTES[self.dtype]

    def about(self, config: Any, **more: Any) -> dict[str, Any]:
        """The first keys of the JSON object."""
        first = {"model": self.model, "config": config.to_dict(), "tokens": self.tokens}
        return {**first, **more, "batch": self.batch}


class Section(NamedTuple):
    """A part of a description: what the text says, and its keys in the JSON object."""

    text: str
    facts: dict[str, Any]


class Line(NamedTuple):
    """A line of the parameter table; shares are fractions, of the model and of a block."""

    depth: int
    name: str
    parameters: int
    share: float
    of_block: float | None


def as_text(sections: Sequence[Section]) -> str:
    """The description for a terminal of 100 columns."""
    return "\n\n".join(section.text for section in sections)


def as_json(sections: Sequence[Section]) -> str:
    """The description as one JSON object."""
    facts = {key: value for section in sections for key, value in section.facts.items()}
    return json.dumps(facts, ensure_ascii=False)


def parts(depth: int, begin: str, **ends: str) -> list[Wanted]:
    """A line for each name in `ends`; it counts what begins with `begin` and that end."""
    return [(depth, name, begin + end) for name, end in ends.items()]


def parameter_lines(
    shapes: Mapping[str, tuple[int, ...]],
    wanted: Sequence[Wanted],
    blocks: tuple[str, ...],
    whole: Beginnings = "",
) -> list[Line]:
    """The parameter table, counted from a model's `param_shapes`; biases go with their matrices.

    Args:
        wanted: its lines in order.
        blocks: how the names of a block's parameters begin, "layers.0." for instance; all blocks
            are alike. A line whose names begin so has a share of that block.
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
    """The same lines, named with all that they are part of: `a layer/attention/W_Q`."""
    renamed: list[Line] = []
    path: list[str] = []
    for line in lines:
        path = [*path[: line.depth], line.name]
        renamed.append(line._replace(name="/".join(path)))
    return renamed


def parameter_section(
    lines: Sequence[Line], labels: Mapping[str, str], block: str = "block", zero: str = "0.0 %"
) -> Section:
    """The parameter table.

    Args:
        labels: what the text says for a name, where that is not its own last part.
        block: what a block is called.
        zero: how the text writes a share of nothing.
    """
    rows = [("parameters", "number", "of the model", f"of a {block}")]
    for line in lines:
        label = labels.get(line.name, line.name.rpartition("/")[2])
        of_block = "" if line.of_block is None else percent(line.of_block, zero)
        share = percent(line.share, zero)
        rows.append((2 * line.depth * " " + label, f"{line.parameters:,}", share, of_block))
    facts = {
        "parameters": {line.name: line.parameters for line in lines},
        "share_of_model": {line.name: line.share for line in lines},
        "share_of_block": {ln.name: ln.of_block for ln in lines if ln.of_block is not None},
    }
    return Section(table(rows, "lrrr"), facts)


def memory_section(sizes: Mapping[str, int], labels: Mapping[str, str]) -> Section:
    """Bytes by name; `labels` as for `parameter_section`."""
    rows = [("memory", "bytes")]
    rows += [(labels.get(name, name), f"{size:,}") for name, size in sizes.items()]
    return Section(table(rows, "lr"), {"memory_bytes": dict(sizes)})


def total_of(lines: Sequence[Line]) -> int:
    """The parameters of the line called total."""
    return next(line.parameters for line in lines if line.name == "total")


def percent(share: float, zero: str) -> str:
    """0.25 is "25.0 %", 0 is `zero`."""
    return f"{100 * share:.1f} %" if share else zero


def several(n: int, what: str) -> str:
    """1 head, 2 heads."""
    return f"{n} {what}{'s' * (n > 1)}"
