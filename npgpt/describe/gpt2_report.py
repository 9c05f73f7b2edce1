"""The description of a GPT-2: boxes, parameters, FLOPs and memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from npgpt.cli import table
from npgpt.describe.architectures import windows_of
from npgpt.describe.gpt2 import (
    Axes,
    Box,
    Cost,
    Structure,
    T,
    flops,
    gpt2_lines,
    memory,
    structure_of,
)
from npgpt.describe.tables import Section, Setting, parameter_section, percent, several
from npgpt.models.gpt2.config import GPT2Config
from npgpt.models.gpt_neo.config import GPTNeoConfig


def gpt2(config: GPT2Config, setting: Setting) -> list[Section]:
    """The description of a GPT-2; in the shapes of its boxes T stays a letter."""
    structure = structure_of(config)
    tokens, batch, dtype, each = setting.tokens, setting.batch, setting.dtype, setting.bytes_each
    below = f"Below: T = {tokens} tokens, {several(batch, 'text')}, {dtype} ({each} bytes)."
    labels = {
        "block": "a block",
        "blocks": f"{config.n_layer} blocks",
        "embedding": "embedding: wte and wpe",
        "without wpe": "without wpe, as nanoGPT counts",
        "lm_head": "lm_head, shared with wte" if config.tie_word_embeddings else "lm_head",
    }
    return [
        Section(_title(config, setting.model), {**setting.about(config), "dtype": dtype}),
        Section(below, {}),
        _boxes(structure, tokens),
        parameter_section(gpt2_lines(config), labels, zero=""),
        _flops(flops(structure, tokens, batch), tokens * batch),
        _memory(memory(structure, tokens, batch, each)),
    ]


def _title(config: GPT2Config, model: str) -> str:
    d, H = config.n_embd, config.n_head
    head = "is wte" if config.tie_word_embeddings else "has its own table"
    attention = ""
    if isinstance(config, GPTNeoConfig):
        attention = f"scores without a scale{windows_of(config)},\n"
    return (
        f"{model}: {config.n_layer} blocks, d {d}, {H} heads of {d // H}, FFN {config.ffn_width} "
        f"({config.activation_function}),\n{attention}"
        f"vocabulary {config.vocab_size}, context {config.n_positions}; lm_head {head}"
    )


def _boxes(structure: Structure, tokens: int) -> Section:
    def facts(boxes: list[Box]) -> list[dict[str, Any]]:
        return [
            {
                "box": box.name,
                "inputs": box.inputs,
                "outputs": box.outputs,
                "parameters": box.parameters,
                "flops_per_token": box.flops(tokens) // tokens,
            }
            for box in boxes
        ]

    stem, block, top = map(facts, (structure.stem, structure.block, structure.top))
    return Section(_box_table(structure, tokens), {"stem": stem, "block": block, "top": top})


def _box_table(structure: Structure, tokens: int) -> str:
    config, everything = structure.config, structure.all_boxes()
    L = config.n_layer
    all_parameters = sum(box.parameters for box in everything)
    all_flops = sum(box.flops(tokens) for box in everything)

    def row(name: str, ins: str, outs: str, boxes: list[Box], times: int) -> list[str]:
        parameters = sum(box.parameters for box in boxes)
        work = sum(box.flops(tokens) for box in boxes)
        share, of_flops = times * parameters / all_parameters, times * work / all_flops
        costs = f"{parameters:,}", percent(share, ""), f"{work // tokens:,}", percent(of_flops, "")
        return [name, ins, outs, *costs]

    def rows(boxes: list[Box], times: int) -> list[list[str]]:
        lines = []
        for box in boxes:
            first, *more = _grouped(box.inputs)
            (result,) = _grouped(box.outputs)
            lines.append(row(box.name, first, result, [box], times))
            lines += [["", again, *[""] * 5] for again in more]
        return lines

    x, ids, logits = (_shape(axes) for axes in ((T, config.n_embd), (T,), (T, config.vocab_size)))
    cells = [["box", "in", "out", "parameters", "share", "FLOPs/token", "share"]]
    cells += rows(structure.stem, 1)
    cells += [[f"── block, × {L} ──", *[""] * 6], *rows(structure.block, L)]
    cells += [row("one block", x, x, structure.block, L), ["──", *[""] * 6]]
    cells += [*rows(structure.top, 1), row("model", ids, logits, everything, 1)]
    note = (
        f"Inside the block counts are for one block, shares for all {L}. With B texts: [B, T, …]."
    )
    return f"{table(cells, 'lllrrrr')}\n{note}"


def _shape(axes: Axes) -> str:
    """As the article writes it: [T, 768]."""
    return f"[{', '.join(map(str, axes))}]"


def _grouped(shapes: Iterable[Axes]) -> list[str]:
    """Each shape once, with how often it comes."""
    texts = [_shape(axes) for axes in shapes]
    numbers = {text: texts.count(text) for text in texts}
    return [text if n == 1 else f"{n} × {text}" for text, n in numbers.items()]


def _flops(costs: Sequence[Cost], tokens: int) -> Section:
    cells = [("FLOPs of a forward pass", "a token", "all tokens", "share", "grows with")]
    everything = costs[-1].amount
    for name, amount, grows in costs:
        share = percent(amount / everything, "")
        cells.append((name, f"{amount // tokens:,}", f"{amount:,}", share, grows))
    note = (
        "2 for each multiply-add of the matrix products. Scores and weighted sums count the whole "
        "T × T\ntable, masked half included. A backward pass takes twice as much."
    )
    return Section(f"{table(cells, 'lrrrl')}\n{note}", {"flops": _facts(costs)})


def _memory(costs: Sequence[Cost]) -> Section:
    cells = [("memory", "bytes", "", "", "grows with")]
    cells += [(cost.name, f"{cost.amount:,}", *_units(cost.amount), cost.grows) for cost in costs]
    note = "Kept for backward: what a forward pass leaves behind, without dropout and logits."
    return Section(f"{table(cells, 'lrrrl')}\n{note}", {"memory_bytes": _facts(costs)})


def _facts(costs: Sequence[Cost]) -> dict[str, Any]:
    return {cost.name: {"amount": cost.amount, "grows_with": cost.grows} for cost in costs}


def _units(size: int) -> tuple[str, str]:
    """In powers of 1000 and of 1024, as the article gives both."""
    power = 3 if size >= 1e9 else 2 if size >= 1e6 else 1
    return (
        f"{size / 1000**power:.1f} {' kMG'[power]}B",
        f"{size / 1024**power:.1f} {' KMG'[power]}iB",
    )
