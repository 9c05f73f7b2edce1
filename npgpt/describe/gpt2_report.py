"""What `python -m npgpt.describe` says: tables of 100 columns, or one JSON object.

Leaves out computing anything but shares and units.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from npgpt.cli import table
from npgpt.describe.structure import Axes, Box, Structure, T
from npgpt.describe.structure_costs import BYTES, Cost, Part, flops, memory, parameter_table
from npgpt.models.gpt2.config import GPT2Config


class Setting(NamedTuple):
    """For what the costs are: `batch` texts of so many tokens, numbers of this dtype."""

    tokens: int
    batch: int
    dtype: str


def as_text(name: str, structure: Structure, setting: Setting) -> str:
    """Everything for a reader."""
    tokens, batch, dtype = setting
    each = BYTES[dtype]
    return "\n\n".join(
        [
            _title(name, structure.config),
            f"Below: T = {tokens} tokens, {batch} text{'s' * (batch > 1)}, {dtype} ({each} bytes).",
            _boxes(structure, tokens),
            _parameters(parameter_table(structure.config), structure.config),
            _flops(flops(structure, tokens, batch), tokens * batch),
            _memory(memory(structure, tokens, batch, each)),
        ]
    )


def as_json(name: str, structure: Structure, setting: Setting) -> dict[str, Any]:
    """The same as an object; in shapes T stays a letter."""
    tokens, batch, dtype = setting
    parts = parameter_table(structure.config)

    def boxes(those: Iterable[Box]) -> list[dict[str, Any]]:
        return [
            {
                "box": box.name,
                "inputs": box.inputs,
                "outputs": box.outputs,
                "parameters": box.parameters,
                "flops_per_token": box.flops(tokens) // tokens,
            }
            for box in those
        ]

    def costs(those: Iterable[Cost]) -> dict[str, Any]:
        return {cost.name: {"amount": cost.amount, "grows_with": cost.grows} for cost in those}

    return {
        "model": name,
        "config": structure.config.to_dict(),
        "tokens": tokens,
        "batch": batch,
        "dtype": dtype,
        "stem": boxes(structure.stem),
        "block": boxes(structure.block),
        "top": boxes(structure.top),
        "parameters": {part.name: part.parameters for part in parts},
        "share_of_model": {part.name: part.share for part in parts},
        "share_of_block": {p.name: p.of_block for p in parts if p.of_block is not None},
        "flops": costs(flops(structure, tokens, batch)),
        "memory_bytes": costs(memory(structure, tokens, batch, BYTES[dtype])),
    }


def shape(axes: Axes) -> str:
    """As the article writes it: [T, 768]."""
    return "[" + ", ".join(map(str, axes)) + "]"


def _title(name: str, config: GPT2Config) -> str:
    d, H = config.n_embd, config.n_head
    head = "is wte" if config.tie_word_embeddings else "has its own table"
    return (
        f"{name}: {config.n_layer} blocks, d {d}, {H} heads of {d // H}, FFN {config.ffn_width} "
        f"({config.activation_function}),\n"
        f"vocabulary {config.vocab_size}, context {config.n_positions}; lm_head {head}"
    )


def _boxes(structure: Structure, tokens: int) -> str:
    L = structure.config.n_layer
    everything = structure.all_boxes()
    all_parameters = sum(box.parameters for box in everything)
    all_flops = sum(box.flops(tokens) for box in everything)

    def row(name: str, ins: str, outs: str, boxes: list[Box], times: int) -> list[str]:
        parameters = sum(box.parameters for box in boxes)
        work = sum(box.flops(tokens) for box in boxes)
        return [
            name,
            ins,
            outs,
            f"{parameters:,}",
            _percent(times * parameters / all_parameters),
            f"{work // tokens:,}",
            _percent(times * work / all_flops),
        ]

    def rows(boxes: list[Box], times: int) -> list[list[str]]:
        lines = []
        for box in boxes:
            first, *more = _grouped(box.inputs)
            (result,) = _grouped(box.outputs)
            lines.append(row(box.name, first, result, [box], times))
            lines += [["", again, *[""] * 5] for again in more]
        return lines

    x = shape((T, structure.config.n_embd))
    cells = [["box", "in", "out", "parameters", "share", "FLOPs/token", "share"]]
    cells += rows(structure.stem, 1)
    cells += [[f"── block, × {L} ──", *[""] * 6], *rows(structure.block, L)]
    cells += [row("one block", x, x, structure.block, L), ["──", *[""] * 6]]
    cells += rows(structure.top, 1)
    cells += [row("model", shape((T,)), shape((T, structure.config.vocab_size)), everything, 1)]
    note = (
        f"Inside the block counts are for one block, shares for all {L}. With B texts: [B, T, …]."
    )
    return f"{table(cells, 'lllrrrr')}\n{note}"


def _grouped(shapes: Iterable[Axes]) -> list[str]:
    """Each shape once, with how often it comes."""
    texts = [shape(axes) for axes in shapes]
    numbers = {text: texts.count(text) for text in texts}
    return [text if n == 1 else f"{n} × {text}" for text, n in numbers.items()]


def _parameters(parts: list[Part], config: GPT2Config) -> str:
    indented = {"W_Q": 4, "W_K": 4, "W_V": 4, "W_O": 4, "W_1": 4, "W_2": 4}
    indented |= {"attention": 2, "FFN": 2, "two LayerNorms": 2}
    spelled = {
        "block": "a block",
        "blocks": f"{config.n_layer} blocks",
        "embedding": "embedding: wte and wpe",
        "without wpe": "without wpe, as nanoGPT counts",
    }
    if config.tie_word_embeddings:
        spelled["lm_head"] = "lm_head, shared with wte"
    cells = [("parameters", "number", "of the model", "of a block")]
    for part in parts:
        name = " " * indented.get(part.name, 0) + spelled.get(part.name, part.name)
        of_block = "" if part.of_block is None else _percent(part.of_block)
        cells.append((name, f"{part.parameters:,}", _percent(part.share), of_block))
    return table(cells, "lrrr")


def _flops(costs: list[Cost], tokens: int) -> str:
    cells = [("FLOPs of a forward pass", "a token", "all tokens", "share", "grows with")]
    everything = costs[-1].amount
    for cost in costs:
        share = _percent(cost.amount / everything)
        cells.append(
            (cost.name, f"{cost.amount // tokens:,}", f"{cost.amount:,}", share, cost.grows)
        )
    note = (
        "2 for each multiply-add of the matrix products. Scores and weighted sums count the whole "
        "T × T\ntable, masked half included. A backward pass takes twice as much."
    )
    return f"{table(cells, 'lrrrl')}\n{note}"


def _memory(costs: list[Cost]) -> str:
    cells = [("memory", "bytes", "", "", "grows with")]
    cells += [(cost.name, f"{cost.amount:,}", *_units(cost.amount), cost.grows) for cost in costs]
    note = "Kept for backward: what a forward pass leaves behind, without dropout and logits."
    return f"{table(cells, 'lrrrl')}\n{note}"


def _units(size: int) -> tuple[str, str]:
    """In powers of 1000 and of 1024, as the article gives both."""
    power = 3 if size >= 1e9 else 2 if size >= 1e6 else 1
    return (
        f"{size / 1000**power:.1f} {' kMG'[power]}B",
        f"{size / 1024**power:.1f} {' KMG'[power]}iB",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share else ""
