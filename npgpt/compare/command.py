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

import numpy as np

from npgpt import cli
from npgpt.compare.activations import GRAD, collect_stations, measure_rounding
from npgpt.compare.differences import (
    Difference,
    allowed_by_rounding,
    difference,
    logits_difference,
    measured_by,
    norm_of,
)
from npgpt.compare.dump import Dump, match_stations, read_stations
from npgpt.compare.inputs import read_inputs
from npgpt.compare.reference import check_counterpart, hf_stations
from npgpt.compare.report import Comparison, as_json, as_text
from npgpt.files.io import expanded
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
    against = args.against or ("hf" if args.dump is None else None)
    dump = read_stations(against) if against not in (None, "hf") else None
    place = auto.find_supported("compare", args.model, args.revision, ("model",))
    model_type = auto.model_type(place)
    if against == "hf":
        check_counterpart(model_type)
    inputs = read_inputs(args, place, model_type, dump)
    if against == "hf" and place.suffix == ".gguf":
        raise ValueError(f"transformers compares a folder, but {args.model!r} is the file {place}.")
    model = auto.from_pretrained(place, dtype=args.dtype)
    ids = inputs.ids, inputs.target_ids
    stations = collect_stations(model, *ids, gradients=args.gradients)
    if args.dump is not None:
        model_name = args.model.encode(errors="surrogateescape").decode(errors="replace")
        metadata = {"format": "npgpt-stations", "model": model_name}
        write_tensors(expanded(args.dump), stations, metadata)
        print(f"{PROG}: wrote {len(stations)} arrays to {args.dump}", file=sys.stderr)
    if against is None:
        return 0
    if dump is None:
        options = {"dtype": args.dtype, "gradients": args.gradients}
        dump = hf_stations(place, *ids, params=model.params, **options)
    comparison = _compare(model, model_type, stations, dump, args, against)
    if args.json:
        found = as_json(comparison, inputs.token_text)
        print(json.dumps(found, ensure_ascii=False, allow_nan=False))
    else:
        print(as_text(comparison, inputs.token_text))
    return 0 if comparison.within else 1


def _compare(
    model: Any,
    model_type: str,
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
        size = norm_of(ours[measured_by(name)])
        if args.tolerance is None:
            rounded = max(rounding[name], rounding[measured_by(name)])
            allowed = allowed_by_rounding(name, ours[name], rounded, dump.precision[name], size)
        else:
            allowed = args.tolerance * size
        return difference(name, ours[name], matched.arrays[name], allowed=allowed, size=size)

    rows = [compared(name) for name in matched.arrays]
    theirs, target_ids = matched.arrays.get("logits"), ours.get("target_ids")
    return Comparison(
        model=args.model,
        model_type=model_type,
        against=against,
        dtype=args.dtype,
        tolerance=args.tolerance,
        ids=ours["ids"].tolist(),
        target_ids=None if target_ids is None else target_ids.tolist(),
        stations=[row for row in rows if not row.station.startswith(GRAD)],
        gradients=[row for row in reversed(rows) if row.station.startswith(GRAD)],
        logits=None if theirs is None else logits_difference(ours["logits"], theirs),
        missing=matched.missing,
        unknown=matched.unknown,
        unread=matched.unread,
    )


def _check(args: argparse.Namespace) -> None:
    if args.text is not None and args.ids is not None:
        raise ValueError("give either a text or --ids, not both.")
    if args.target is not None and args.target_ids is not None:
        raise ValueError("give either --target or --target-ids, not both.")
    if args.dump is not None and not args.dump.endswith(".safetensors"):
        raise ValueError(f"--dump writes a .safetensors file, but is to write {args.dump!r}.")
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
    add("--gradients", action="store_true", help="also the loss and every parameter's gradient")
    add("--tolerance", type=float, metavar="X", help="largest ‖Δ‖/‖npgpt‖; default: by rounding")
    add("--json", action="store_true", help="one JSON object instead of tables")
    return parser
