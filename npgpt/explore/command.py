"""`python -m npgpt.explore "TEXT" --model … --out page.html`: a pass as a page to walk through.

What it shows is collected in `data.py`; `page.py` makes one file of it, which needs no network.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from npgpt import cli
from npgpt.explore.notebook import explore
from npgpt.models.auto import find_supported, from_pretrained
from npgpt.text.unknown import warn_of_unknown

if TYPE_CHECKING:
    from npgpt.text.tokenizer import TextTokenizer

PROG = "npgpt.explore"


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    args = _parser().parse_args(argv)
    cli.check_text_or_ids(args.text, args.ids)
    place = find_supported("explore", args.model, args.revision)
    tokenizer = _load_tokenizer(place, args)
    ids = _read_ids(args, tokenizer)
    model = from_pretrained(place, dtype=cli.DTYPES[args.dtype])
    shown = explore(
        model,
        ids,
        bytes_of={} if tokenizer is None else tokenizer.bytes_of,
        name=args.model.encode(errors="surrogateescape").decode(errors="replace"),
        position=args.position,
        target=_token("--target", args.target, tokenizer),
        foil=_token("--foil", args.foil, tokenizer),
        full=args.full,
    )
    shown.save(args.out)
    megabytes = Path(args.out).stat().st_size / 1e6
    print(f"{args.out}: {len(ids)} tokens, {megabytes:.1f} MB; open it in a browser.")
    return 0


def _load_tokenizer(place: Path, args: argparse.Namespace) -> TextTokenizer | None:
    """Needed for a text; with --ids it only says what the ids mean, and may be missing."""
    try:
        from npgpt.text.tokenizer import load_tokenizer

        return load_tokenizer(place)
    except (ValueError, OSError, ImportError):
        if args.ids is None:
            raise
        return None


def _read_ids(args: argparse.Namespace, tokenizer: TextTokenizer | None) -> list[int]:
    if args.ids is not None:
        return cli.parse_ids(args.ids)
    assert tokenizer is not None
    text = cli.text_or_stdin(args.text)
    ids = tokenizer.encode(text, allowed_special="all" if args.special else frozenset())
    warn_of_unknown(ids, tokenizer)
    return ids


def _token(option: str, text: str | None, tokenizer: TextTokenizer | None) -> int | None:
    """The id of an option's token: a text that is one token, ␣ for a space, or #id."""
    if text is None:
        return None
    if text.startswith("#") and text[1:].isdecimal():
        return int(text[1:])
    if tokenizer is None:
        raise ValueError(f"{option} {text!r} needs a vocabulary; without one, give it as #id.")
    ids = tokenizer.encode(text.replace("␣", " "))
    if len(ids) != 1:
        raise ValueError(
            f"{option} {text!r} is {len(ids)} tokens; give one, with its space if it has one "
            "(␣was), or as #id."
        )
    return ids[0]


def _parser() -> argparse.ArgumentParser:
    parser = cli.new_parser(PROG, "One pass of a GPT-2 or a Llama, there and back, as a page.")
    add = parser.add_argument
    cli.add_text(parser, "the text to read")
    add("--ids", metavar="IDS", help="token ids instead of a text; no vocabulary needed")
    cli.add_model(parser)
    add("--out", metavar="FILE", default="explore.html", help="the page (default: %(default)s)")
    add("--position", type=int, metavar="P", help="the token that is followed at first")
    add("--target", metavar="TOKEN", help="a next token there, to explain; default: the true one")
    add("--foil", metavar="TOKEN", help="another, to compare it with; default: the likeliest other")
    add("--full", action="store_true", help="the tables of all heads, however large the page")
    add("--special", action="store_true", help="<|endoftext|> in the text is the token, not text")
    return parser
