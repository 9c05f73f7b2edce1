"""`python -m npgpt.trace "TEXT" --model …`: follow one token through a GPT-2 or a Llama.

What is computed is in `lens.py`, what is printed in `report.py`.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from npgpt import cli
from npgpt.models.auto import find_supported, from_pretrained
from npgpt.models.causal import check_positions
from npgpt.text.labels import labeller, visible
from npgpt.trace import lens
from npgpt.trace.report import as_json, as_text

if TYPE_CHECKING:
    from npgpt.text.tokenizer import Tokenizer

PROG = "npgpt.trace"


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    args = _parser().parse_args(argv)
    _check(args)
    place = find_supported(
        "trace",
        args.model,
        args.revision,
        ("model",) if args.text is None else ("tokenizer", "model"),
    )
    tokenizer = _load_tokenizer(place, args)
    ids = _read_ids(args, tokenizer)
    model = from_pretrained(place, dtype=cli.DTYPES[args.dtype])
    view = lens.view_of(model)
    _check_numbers(args, view, len(ids))
    check_positions(np.arange(len(ids)), model.context)  # beyond it a Llama turns on, untrained
    _check_memory(view, len(ids), np.dtype(args.dtype).itemsize)
    bytes_of = {} if tokenizer is None else tokenizer.bytes_of
    text = visible(b"".join(bytes_of.get(i, b"") for i in ids)) if bytes_of else ""
    seen = lens.observe(model, ids)
    trace, label = _trace(seen, text.replace("␣", " "), args), labeller(bytes_of)
    if args.json:
        print(json.dumps(as_json(trace, label), ensure_ascii=False, allow_nan=False))
    else:
        print(as_text(trace, seen, label))
    return 0


def _trace(seen: lens.Observed, text: str, args: argparse.Namespace) -> lens.Trace:
    last = len(seen.ids) - 1
    position = last if args.position is None else args.position
    follows = position < last
    target = seen.ids[position + 1] if follows else int(np.argmax(seen.stations["logits"][last]))
    frequencies = seen.view.frequencies
    ffn = seen.view.n_layer - 1 if args.layer is None else args.layer
    return lens.Trace(
        model=args.model,
        dtype=args.dtype,
        text=text,
        tokens=[lens.Token(i) for i in seen.ids],
        position=position,
        target=lens.Target(target, follows),
        shapes={name: [*array.shape] for name, array in seen.stations.items()},
        corrections=lens.corrections(seen, position),
        logit_lens=lens.logit_lens(seen, position, target, args.top),
        rotary_angles=None if frequencies is None else position * frequencies(len(seen.ids)),
        head=_head(seen, position, args),
        sink_heads=lens.sink_heads(seen, position),
        ffn=lens.FFN(ffn, lens.strongest_neurons(seen, ffn, position, args.top)),
    )


def _head(seen: lens.Observed, position: int, args: argparse.Namespace) -> lens.Head:
    layer, head = args.layer, args.head
    if head is None:
        layer, head = lens.sharpest_head(seen, position, layer)
    return lens.Head(
        layer=layer,
        head=head,
        head_chosen=args.head is None,
        layer_chosen=args.layer is None,
        shares_keys_with=[h for h in seen.view.heads_that_share(head) if h != head] or None,
        probs=seen.attention_weights(layer)[head],
    )


def _load_tokenizer(place: Path, args: argparse.Namespace) -> Tokenizer | None:
    """Needed for a text; with --ids it only says what the ids mean, and may be missing."""
    try:
        from npgpt.text.tokenizer import load_tokenizer

        if args.ids is None:
            return load_tokenizer(place)
        return load_tokenizer(args.model, revision=args.revision)  # not among what was downloaded
    except (ValueError, OSError, ImportError):
        if args.ids is None:
            raise
        return None


def _read_ids(args: argparse.Namespace, tokenizer: Tokenizer | None) -> list[int]:
    if args.ids is not None:
        ids = cli.parse_ids(args.ids)
    else:
        assert tokenizer is not None
        text = cli.text_or_stdin(args.text)
        ids = tokenizer.encode(text, allowed_special="all" if args.special else frozenset())
    if not ids:
        raise ValueError("there are no tokens to trace; give a text or --ids.")
    return ids


def _check(args: argparse.Namespace) -> None:
    cli.check_text_or_ids(args.text, args.ids)
    if args.top < 1:
        raise ValueError(f"--top must be at least 1, but is {args.top}.")
    if args.head is not None and args.layer is None:
        raise ValueError("--head needs --layer: every block has heads of these numbers.")


def _check_numbers(args: argparse.Namespace, view: lens.LensView, T: int) -> None:
    for option, value, size, what in (
        ("--position", args.position, T, "tokens"),
        ("--layer", args.layer, view.n_layer, "blocks"),
        ("--head", args.head, view.n_head, "heads"),
    ):
        if value is not None and not 0 <= value < size:
            raise ValueError(
                f"{option} {value} does not exist: there are {size} {what}, counted from 0."
            )


def _check_memory(view: lens.LensView, T: int, itemsize: int) -> None:
    """A system that has lent more memory than it has ends the process without a word."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return  # Windows, where an array that is too large raises
    taken = view.n_layer * view.n_head * T**2 * itemsize / 2**30
    present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    if taken > present:
        raise ValueError(
            f"the weight tables of {view.n_layer} × {view.n_head} heads over {T} tokens take "
            f"{taken:.1f} GiB, but this machine has {present:.1f}; shorten the text."
        )


def _parser() -> argparse.ArgumentParser:
    parser = cli.new_parser(PROG, "Follow one token through a GPT-2 or a Llama.")
    add = parser.add_argument
    cli.add_text(parser, "the text to read")
    add("--ids", metavar="IDS", help="token ids instead of a text; no vocabulary needed")
    cli.add_model(parser)
    add("--position", type=int, metavar="P", help="the token to follow; default: the last")
    add("--layer", type=int, metavar="N", help="the block whose head and FFN are shown")
    add("--head", type=int, metavar="N", help="the head; default: one that looks at one token")
    add("--top", type=int, default=5, metavar="K", help="how many tokens, neurons (default: 5)")
    add("--special", action="store_true", help="<|endoftext|> in the text is the token, not text")
    add("--json", action="store_true", help="one JSON object instead of tables")
    return parser
