"""`python -m npgpt.compare "TEXT" --model …`: two implementations of one model, station by station.

Lays npgpt's intermediate results beside those of Hugging Face transformers, or of a file that any
other program wrote, and names the first that differs by more than rounding; or writes npgpt's own.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from npgpt import cli
from npgpt.checkpoint import check_works, from_pretrained
from npgpt.compare_report import Comparison, TokenText, as_json, as_text
from npgpt.differences import (
    Difference,
    allowed_by_rounding,
    allowed_by_tolerance,
    difference,
    logits_difference,
)
from npgpt.gguf_file import find_gguf
from npgpt.hub import find_folder
from npgpt.models.gpt2 import GPT2
from npgpt.models.llama import Llama
from npgpt.safetensors_file import write_tensors
from npgpt.stations import GRAD, collect_stations, measure_rounding
from npgpt.stations_file import Dump, ids_in, match_stations, read_stations

if TYPE_CHECKING:
    from npgpt.tokenizer import Tokenizer

PROG = "npgpt.compare"

EPILOG = """\
Without --against the other side is Hugging Face transformers (pip install 'npgpt[hf]'); with
--dump alone nothing is compared. The README lists the stations and how to write them to a file.
exit code: 0 within tolerance (or dumped), 1 beyond it, 2 bad input
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    args = _parser().parse_args(argv)
    _check(args)
    against = args.against or ("hf" if args.dump is None else None)
    dump = read_stations(against) if against not in (None, "hf") else None
    check_works(args.model, "compare", args.revision)
    tokenizer = _load_tokenizer(args)
    ids = _read_ids(args, tokenizer, dump)
    source = find_gguf(args.model) or find_folder(args.model, args.revision)
    if against == "hf" and source.suffix == ".gguf":
        raise ValueError(
            f"transformers compares a folder, but {args.model!r} is the file {source}."
        )
    model = from_pretrained(source, dtype=args.dtype)
    stations = collect_stations(model, ids, gradients=args.gradients)
    if args.dump is not None:
        write_tensors(args.dump, stations, {"format": "npgpt-stations", "model": args.model})
        print(f"{PROG}: wrote {len(stations)} arrays to {args.dump}", file=sys.stderr)
    if against is None:
        return 0
    if dump is None:
        from npgpt.reference import hf_stations

        theirs = hf_stations(source, ids, dtype=args.dtype, gradients=args.gradients)
        # transformers computes a Llama's norms, angles and softmax in float32 whatever the dtype.
        precision = "float32" if isinstance(model, Llama) else args.dtype
        dump = Dump(theirs, dict.fromkeys(theirs, precision))
    comparison = _compare(model, stations, dump, args, against)
    token_text = _token_text(tokenizer)
    if args.json:
        print(json.dumps(as_json(comparison, token_text), ensure_ascii=False, allow_nan=False))
    else:
        print(as_text(comparison, token_text))
    return 0 if comparison.within else 1


def _compare(
    model: GPT2 | Llama,
    ours: dict[str, np.ndarray],
    dump: Dump,
    args: argparse.Namespace,
    against: str,
) -> Comparison:
    """Every station that both sides have."""
    matched = match_stations(ours, dump, model.params, against)
    rounding: dict[str, float] = {}
    if args.tolerance is None:
        rounding = measure_rounding(model, ours, gradients=args.gradients)

    def compared(name: str) -> Difference:
        allowed = (
            allowed_by_rounding(name, ours[name], rounding[name], dump.precision[name])
            if args.tolerance is None
            else allowed_by_tolerance(ours[name], args.tolerance)
        )
        return difference(name, ours[name], matched.arrays[name], allowed=allowed)

    rows = [compared(name) for name in matched.arrays]
    theirs = matched.arrays.get("logits")
    return Comparison(
        model=args.model,
        against=against,
        dtype=args.dtype,
        tolerance=args.tolerance,
        ids=ours["ids"].tolist(),
        stations=[row for row in rows if not row.station.startswith(GRAD)],
        gradients=[row for row in reversed(rows) if row.station.startswith(GRAD)],
        logits=None if theirs is None else logits_difference(ours["logits"], theirs),
        missing=matched.missing,
        unknown=matched.unknown,
        unread=matched.unread,
    )


def _read_ids(
    args: argparse.Namespace, tokenizer: Tokenizer | None, dump: Dump | None
) -> np.ndarray:
    """The ids given, as text or as ids, which must be those of the dump; or the dump's."""
    dumped = None if dump is None else ids_in(dump, args.against)
    if args.ids is not None:
        ids = np.array(cli.parse_ids(args.ids))
    elif args.text is not None and tokenizer is not None:
        text = sys.stdin.read() if args.text == "-" else args.text
        ids = np.array(tokenizer.encode(text))
    elif dumped is not None:
        ids = dumped
    else:
        raise ValueError("give a text or --ids to compare on, or a file with 'ids' in it.")
    if dumped is not None and not np.array_equal(ids, dumped):
        raise ValueError(
            f"{args.against}: its 'ids' {_shown(dumped)} are not those given here, {_shown(ids)}; "
            "leave these out to take the file's."
        )
    if ids.size == 0:
        raise ValueError("there are no tokens to compare on; give a text or --ids.")
    return ids


def _shown(ids: np.ndarray) -> str:
    return " ".join(map(str, ids[:8])) + (" …" if len(ids) > 8 else "")


def _load_tokenizer(args: argparse.Namespace) -> Tokenizer | None:
    """Needed for a text; without one it only adds the tokens' text to the report."""
    if args.text is None and args.against is None and args.dump is not None:
        return None
    try:
        from npgpt.tokenizer import load_tokenizer

        return load_tokenizer(args.model, revision=args.revision)
    except (ValueError, OSError, ImportError):
        if args.text is not None:
            raise
        return None


def _token_text(tokenizer: Tokenizer | None) -> TokenText:
    def token_text(token: int) -> str | None:
        if tokenizer is None or token not in tokenizer.bytes_of:
            return None
        return tokenizer.decode([token])

    return token_text


def _check(args: argparse.Namespace) -> None:
    if args.text is not None and args.ids is not None:
        raise ValueError("give either a text or --ids, not both.")
    if args.dump is not None and not args.dump.endswith(".safetensors"):
        raise ValueError(f"--dump writes a .safetensors file, but is to write {args.dump!r}.")
    if args.tolerance is not None and not 0 <= args.tolerance < float("inf"):
        raise ValueError(f"--tolerance must be a number >= 0, but is {args.tolerance}.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {PROG}",
        description="Compare two implementations of a GPT-2 or a Llama, station by station.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("text", nargs="?", metavar="TEXT", help='the text to compare on; "-" reads stdin')
    add("--ids", metavar="IDS", help="token ids instead of a text; default: those in the file")
    add(
        "--model",
        default=cli.DEFAULT_MODEL,
        help="a folder, weights/NAME, or a hub id (%(default)s)",
    )
    add("--revision", help="branch, tag or commit on the hub")
    add("--against", metavar="hf|FILE", help="transformers, or a .safetensors or .npz of stations")
    add("--dump", metavar="FILE", help="write npgpt's stations to a .safetensors file")
    add("--gradients", action="store_true", help="also the loss and every parameter's gradient")
    add("--dtype", choices=cli.DTYPES, default="float32")
    add("--tolerance", type=float, metavar="X", help="largest ‖Δ‖/‖npgpt‖; default: by rounding")
    add("--json", action="store_true", help="one JSON object instead of tables")
    return parser


if __name__ == "__main__":
    sys.exit(cli.run(PROG, main))
