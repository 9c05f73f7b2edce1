"""`python -m npgpt.fill_mask "The cat [MASK] on the mat." --model …`: what may stand at a mask.

Prints, for every mask in the text, the likeliest tokens of a BERT and their probabilities. Each
mask is filled by itself: the others stay masks.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from npgpt import cli
from npgpt.cli import left, width
from npgpt.files.hub import Files
from npgpt.models.auto import find_supported, from_pretrained, model_type
from npgpt.models.bert.families import family_of
from npgpt.models.bert.model import BERT
from npgpt.ops.softmax import check_logits, softmax_forward
from npgpt.text.unknown import warn_of_unknown
from npgpt.text.word_pieces import WordPieces, load_word_pieces

PROG = "npgpt.fill_mask"


class Candidate(NamedTuple):
    """A token that may stand at a mask."""

    id: int
    probability: float


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    args = _parser().parse_args(argv)
    _check(args)
    files: tuple[Files, ...] = ("tokenizer", "model") if args.ids is None else ("model",)
    place = find_supported("fill_mask", args.model, args.revision, files)
    given = cli.text_or_stdin(args.text if args.ids is None else args.ids).rstrip("\n")
    if args.ids is None:  # before the weights are loaded: bad input should not wait for them
        pieces = load_word_pieces(place)
        ids, mask_id, mask = pieces.encode(given), pieces.mask_id, pieces.mask_token
        warn_of_unknown(ids, pieces)
    else:
        pieces, ids = None, cli.parse_ids(given)
        usual = family_of(model_type(place)).mask_id
        mask_id = usual if args.mask_id is None else args.mask_id
        mask = f"id {mask_id}"
    if mask_id not in ids:
        raise ValueError(f"there is no mask; write {mask} where a token is to be guessed.")
    model = from_pretrained(place, dtype=cli.DTYPES[args.dtype])
    tokens = None if pieces is None else pieces.tokenizer.get_vocab().values()
    found = fill_masks(model, ids, mask_id, args.top_k, tokens)
    _print_json(found, given, ids, pieces) if args.json else _print(found, ids, pieces)
    return 0


def fill_masks(
    model: BERT,
    ids: Sequence[int],
    mask_id: int,
    top_k: int,
    tokens: Iterable[int] | None = None,
) -> dict[int, list[Candidate]]:
    """Position of each mask -> the `top_k` likeliest tokens there, the likeliest first.

    Args:
        ids: [T], with [CLS] and [SEP] around the text.
        tokens: the ids of the vocabulary; rows of the token table without one are padding and are
            not proposed, though their share of the probability stays theirs. None: all rows.

    Raises:
        ValueError: ids that the model cannot read; a model without an MLM head; logits that are not
            finite.
    """
    logits = model(np.asarray(ids))  # [T, V]
    rows = np.arange(logits.shape[-1])
    known = rows if tokens is None else np.intersect1d(rows, [*tokens])
    found = {}
    for position in np.flatnonzero(np.asarray(ids) == mask_id):
        check_logits(logits[position])
        probs, _ = softmax_forward(logits[position].astype(np.float64), axis=-1)
        best = known[np.argsort(-probs[known], kind="stable")][:top_k]
        found[int(position)] = [Candidate(int(token), float(probs[token])) for token in best]
    return found


def _print(
    found: dict[int, list[Candidate]], ids: Sequence[int], pieces: WordPieces | None
) -> None:
    for number, (position, candidates) in enumerate(found.items()):
        if len(found) > 1:
            print(f"{'' if number == 0 else chr(10)}mask {number + 1} of {len(found)}")
        names = [_name(each.id, pieces) for each in candidates]
        column = max(map(width, names))
        for name, each in zip(names, candidates, strict=True):
            line = f"{each.probability:7.4f}  {left(name, column)}"
            print(f"{line}  {_filled(ids, position, each.id, pieces)}".rstrip())


def _print_json(
    found: dict[int, list[Candidate]], given: str, ids: Sequence[int], pieces: WordPieces | None
) -> None:
    """One JSON object a mask, on a line of its own."""
    for position, candidates in found.items():
        filled: list[dict[str, Any]] = [
            {
                "id": each.id,
                "token": None if pieces is None else _name(each.id, pieces),
                "probability": each.probability,
                "text": None if pieces is None else _filled(ids, position, each.id, pieces),
            }
            for each in candidates
        ]
        line = {"text": None if pieces is None else given, "ids": [*ids], "position": position}
        print(json.dumps({**line, "candidates": filled}, ensure_ascii=False))


def _name(token: int, pieces: WordPieces | None) -> str:
    if pieces is None or pieces.tokenizer.id_to_token(token) is None:
        return str(token)
    name: str = pieces.tokenizer.decode([token], skip_special_tokens=False)
    return name


def _filled(ids: Sequence[int], position: int, token: int, pieces: WordPieces | None) -> str:
    """The text with this one mask filled, without [CLS] and [SEP]; other masks and [UNK] stay."""
    filled = [*ids[:position], token, *ids[position + 1 :]]
    if pieces is None:
        return " ".join(map(str, filled))
    kept = pieces.mask_token, pieces.unknown_token
    added = pieces.tokenizer.get_added_tokens_decoder().items()
    hidden = {i for i, each in added if each.special and each.content not in kept}
    shown = [i for n, i in enumerate(filled) if n == position or i not in hidden]
    return pieces.tokenizer.decode(shown, skip_special_tokens=False)


def _check(args: argparse.Namespace) -> None:
    cli.check_text_or_ids(args.text, args.ids)
    if args.top_k < 1:
        raise ValueError(f"--top-k must be at least 1, but is {args.top_k}.")
    if args.mask_id is not None and args.ids is None:
        raise ValueError("--mask-id goes with --ids; a text says where the mask is by itself.")


def _parser() -> argparse.ArgumentParser:
    parser = cli.new_parser(PROG, "Fill the masks in a text with a BERT, in NumPy.")
    add = parser.add_argument
    cli.add_text(parser, "with [MASK], or a RoBERTa's <mask>, where to guess")
    add("--ids", metavar="IDS", help="the text as token ids, [CLS] and [SEP] included")
    add("--mask-id", type=int, metavar="N", help="with --ids: the mask; default: the published one")
    cli.add_model(parser, "a folder, weights/NAME, or a hub id: bert-base-uncased", default=None)
    add("--top-k", type=int, default=5, metavar="K", help="how many tokens a mask; default: 5")
    add("--json", action="store_true", help="one JSON object per mask, on a line of its own")
    return parser


if __name__ == "__main__":
    sys.exit(cli.run(PROG, main))
