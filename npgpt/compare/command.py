"""`python -m npgpt.compare "TEXT" --model …`: two implementations of one model, station by station.

Compares npgpt's intermediate results with those of Hugging Face transformers, or of a file that any
other program wrote, and names the first that differs by more than rounding; or writes npgpt's own.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from npgpt import cli
from npgpt.compare.activations import collect_stations
from npgpt.compare.as_json import as_json, listed
from npgpt.compare.comparing import Question, compare
from npgpt.compare.dump import Dump, read_stations
from npgpt.compare.inputs import Inputs, read_inputs
from npgpt.compare.page import as_page
from npgpt.compare.reference import check_counterpart, hf_stations
from npgpt.compare.report import as_text, colour_of
from npgpt.files.io import expanded, replacing
from npgpt.files.safetensors_file import write_tensors
from npgpt.models import auto

PROG = "npgpt.compare"

EPILOG = """\
Without --against the other side is Hugging Face transformers (pip install "npgpt[hf]"); with
--dump alone nothing is compared. An encoder-decoder reads TEXT and predicts the target.
docs/porting.md: the stations and the loss of each architecture, and how to write them to a file.
exit code: 0 within tolerance (or dumped), 1 beyond it, 2 bad input
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    args = _parser().parse_args(argv)
    _check(args)
    wants_own = args.dump is not None or args.list
    against = args.against or (None if wants_own else "hf")
    dump = read_stations(against) if against not in (None, "hf") else None
    place = auto.find_supported("compare", args.model, args.revision, ("model",))
    model_type = auto.model_type(place)
    if against == "hf":
        check_counterpart(model_type)
    inputs = read_inputs(args, place, model_type, dump)
    if against == "hf" and place.suffix == ".gguf":
        raise ValueError(f"transformers compares a folder, but {args.model!r} is the file {place}.")
    model = auto.from_pretrained(place, dtype=args.dtype)
    ids, code = (inputs.ids, inputs.target_ids), 0
    if against is not None:
        if dump is None:
            options = {"dtype": args.dtype, "gradients": args.gradients}
            dump = hf_stations(place, *ids, params=model.params, **options)
        how = args.dtype, args.tolerance, *ids, args.gradients, args.local, args.html is not None
        code = _report(model, dump, Question(args.model, model_type, against, *how), inputs, args)
    if wants_own:  # now that the other side's file, which may have the same name, has been read
        _show_own(model, inputs, args)
    return code


def _show_own(model: Any, inputs: Inputs, args: argparse.Namespace) -> None:
    """--list and --dump: npgpt's arrays, their names or the whole of them."""
    stations = collect_stations(model, inputs.ids, inputs.target_ids, gradients=args.gradients)
    if args.list:
        print(listed(stations))
    if args.dump is not None:
        model_name = args.model.encode(errors="surrogateescape").decode(errors="replace")
        metadata = {"format": "npgpt-stations", "model": model_name}
        write_tensors(expanded(args.dump), stations, metadata)
        print(f"{PROG}: wrote {len(stations)} arrays to {args.dump}", file=sys.stderr)


def _report(
    model: Any, dump: Dump, asked: Question, inputs: Inputs, args: argparse.Namespace
) -> int:
    """Compare, and say what was found; returns the exit code."""
    comparison = compare(model, dump, asked)
    if args.html is not None:
        page = as_page(comparison, inputs.token_text).encode(errors="replace")
        with replacing(expanded(args.html)) as (temporary,):
            temporary.write_bytes(page)
    if args.json:
        found = as_json(comparison, inputs.token_text)
        print(json.dumps(found, ensure_ascii=False, allow_nan=False))
    else:
        for line in as_text(comparison, inputs.token_text).split("\n"):
            cli.print_line(line, colour_of(line))
    return 0 if comparison.within else 1


def _check(args: argparse.Namespace) -> None:
    if args.text is not None and args.ids is not None:
        raise ValueError("give either a text or --ids, not both.")
    if args.target is not None and args.target_ids is not None:
        raise ValueError("give either --target or --target-ids, not both.")
    if args.dump is not None and not args.dump.endswith(".safetensors"):
        raise ValueError(f"--dump writes a .safetensors file, but is to write {args.dump!r}.")
    if (args.html or args.local) and args.against is None and (args.dump or args.list):
        raise ValueError("--html and --local need the other side: --against hf or --against FILE.")
    if args.tolerance is not None and not 0 <= args.tolerance < float("inf"):
        raise ValueError(f"--tolerance must be a number >= 0, but is {args.tolerance}.")


def _parser() -> argparse.ArgumentParser:
    parser = cli.new_parser(
        PROG,
        "Compare two implementations of one model, station by station.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    cli.add_text(parser, "the text to compare on")
    add("--ids", metavar="IDS", help="token ids instead of a text; default: those in the file")
    add("--target", type=cli.text, help="encoder-decoder: the text to predict; TEXT is the source")
    add("--target-ids", metavar="IDS", help="the target as ids, its end included")
    cli.add_model(parser)
    add("--against", metavar="hf|FILE", help="transformers, or a .safetensors or .npz of stations")
    add("--dump", metavar="FILE", help="write npgpt's stations to a .safetensors file")
    add("--list", action="store_true", help="print names, dtypes and shapes of npgpt's stations")
    add("--gradients", action="store_true", help="also the loss, and the gradients of all")
    add("--local", action="store_true", help="compute each station from the other side's")
    add("--tolerance", type=float, metavar="X", help="largest ‖Δ‖/‖npgpt‖; default: by rounding")
    add("--html", metavar="FILE", help="also write a page, with maps of what is wrong first")
    add("--json", action="store_true", help="one JSON object instead of tables")
    return parser
