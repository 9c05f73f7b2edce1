"""`python -m npgpt.trace "TEXT" --model …`: one token's journey through a model.

The residual stream and its corrections, what the model would say after each block, the weight table
of a head, the strongest neurons of an FFN, all from one ordinary forward pass. Works on GPT-2 and
Llama; what differs between them is in `journey_parts.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from npgpt import cli
from npgpt.models.auto import find_supported, from_pretrained
from npgpt.models.causal import check_positions
from npgpt.text.labels import labeller, visible
from npgpt.trace.journey import (
    Pass,
    corrections,
    guesses,
    looking_head,
    observe_pass,
    resting_heads,
    strongest_neurons,
)
from npgpt.trace.journey_parts import Parts, parts_of
from npgpt.trace.report import HeadTable, Journey, as_text
from npgpt.trace.trace_json import as_json

if TYPE_CHECKING:
    from npgpt.text.tokenizer import Tokenizer

PROG = "npgpt.trace"


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    args = _parser().parse_args(argv)
    _check(args)
    place = find_supported("trace", args.model, args.revision, ("model",))
    tokenizer = _load_tokenizer(args)
    ids = _read_ids(args, tokenizer)
    model = from_pretrained(place, dtype=cli.DTYPES[args.dtype])
    _check_numbers(args, parts_of(model), len(ids))
    check_positions(np.arange(len(ids)), model.context)  # beyond it a Llama turns on, untrained
    _check_memory(parts_of(model), len(ids), np.dtype(args.dtype).itemsize)
    bytes_of = {} if tokenizer is None else tokenizer.bytes_of
    label = labeller(bytes_of)
    text = visible(b"".join(bytes_of.get(i, b"") for i in ids)) if bytes_of else ""
    text = text.replace("␣", " ")
    journey = _journey(observe_pass(model, ids), text, args)
    if args.json:
        print(json.dumps(as_json(journey, label), ensure_ascii=False, allow_nan=False))
    else:
        print(as_text(journey, label))
    return 0


def _journey(seen: Pass, text: str, args: argparse.Namespace) -> Journey:
    last = len(seen.ids) - 1
    position = last if args.position is None else args.position
    follows = position < last
    target = seen.ids[position + 1] if follows else int(np.argmax(seen.stations["logits"][last]))
    layer, head = args.layer, args.head
    if head is None:
        layer, head = looking_head(seen, position, layer)
    ffn = seen.parts.n_layer - 1 if args.layer is None else args.layer
    return Journey(
        model=args.model,
        dtype=args.dtype,
        text=text,
        seen=seen,
        position=position,
        target=target,
        follows=follows,
        corrections=corrections(seen),
        angles=position * seen.parts.speeds(seen.model, len(seen.ids)),
        guesses=guesses(seen, position, target, args.top),
        head=HeadTable(layer, head, args.head is None, args.layer is None),
        resting=resting_heads(seen, position),
        ffn=ffn,
        neurons=strongest_neurons(seen, ffn, position, args.top),
    )


def _read_ids(args: argparse.Namespace, tokenizer: Tokenizer | None) -> list[int]:
    if args.ids is not None:
        ids = cli.parse_ids(args.ids)
    else:
        assert tokenizer is not None
        text = sys.stdin.read() if args.text == "-" else args.text
        ids = tokenizer.encode(text, allowed_special="all" if args.special else set())
    if not ids:
        raise ValueError("there are no tokens to trace; give a text or --ids.")
    return ids


def _load_tokenizer(args: argparse.Namespace) -> Tokenizer | None:
    """Needed for a text; with --ids it only says what the ids mean."""
    try:
        from npgpt.text.tokenizer import load_tokenizer

        return load_tokenizer(args.model, revision=args.revision)
    except (ValueError, OSError, ImportError):
        if args.text is not None:
            raise
        return None


def _check(args: argparse.Namespace) -> None:
    if (args.text is None) == (args.ids is None):
        raise ValueError('give either a text ("-" reads it from stdin) or --ids.')
    if args.top < 1:
        raise ValueError(f"--top must be at least 1, but is {args.top}.")
    if args.head is not None and args.layer is None:
        raise ValueError("--head needs --layer: every block has heads of these numbers.")


def _check_numbers(args: argparse.Namespace, parts: Parts, T: int) -> None:
    for option, value, size, what in (
        ("--position", args.position, T, "tokens"),
        ("--layer", args.layer, parts.n_layer, "blocks"),
        ("--head", args.head, parts.n_head, "heads"),
    ):
        if value is not None and not 0 <= value < size:
            raise ValueError(
                f"{option} {value} does not exist: there are {size} {what}, counted from 0."
            )


def _check_memory(parts: Parts, T: int, itemsize: int) -> None:
    """A system that has lent more memory than it has ends the process without a word."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return  # Windows; what is too much there is said to be
    taken = parts.n_layer * parts.n_head * T**2 * itemsize / 2**30
    present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    if taken > present:
        raise ValueError(
            f"the weight tables of {parts.n_layer} × {parts.n_head} heads over {T} tokens take "
            f"{taken:.1f} GiB, but this machine has {present:.1f}; shorten the text."
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {PROG}", description="Follow one token through a GPT-2 or a Llama."
    )
    add = parser.add_argument
    add("text", nargs="?", metavar="TEXT", help='the text to read; "-" reads stdin')
    add("--ids", metavar="IDS", help="token ids instead of a text; no vocabulary needed")
    add(
        "--model",
        default=cli.DEFAULT_MODEL,
        help="a folder, weights/NAME, a hub id, a .gguf file, or smollm2 (%(default)s)",
    )
    add("--revision", help="branch, tag or commit on the hub")
    add("--position", type=int, metavar="P", help="the token to follow; default: the last")
    add("--layer", type=int, metavar="N", help="the block whose head and FFN are shown")
    add("--head", type=int, metavar="N", help="the head; default: one that looks at one token")
    add("--top", type=int, default=5, metavar="K", help="how many tokens, neurons (default: 5)")
    add("--special", action="store_true", help="<|endoftext|> in the text is the token, not text")
    add("--dtype", choices=cli.DTYPES, default="float32")
    add("--json", action="store_true", help="one JSON object instead of tables")
    return parser
