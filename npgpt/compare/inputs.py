"""What `python -m npgpt.compare` compares on: ids, from a text, from the command line or the file.

A text goes through the model's own vocabulary. An encoder-decoder has two texts: the source that it
reads, and the target that it predicts.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from npgpt import cli
from npgpt.compare.dump import Dump, ids_in
from npgpt.compare.report import TokenText
from npgpt.models.bert.families import FAMILIES
from npgpt.models.settings import read_config
from npgpt.models.transformer.config import DIALECTS, TransformerConfig
from npgpt.text.unknown import HasUnknown, warn_of_unknown

Encode = Callable[[str], list[int]]

OPTIONS = {"ids": "a text or --ids", "target_ids": "--target or --target-ids"}


class Inputs(NamedTuple):
    """What to compare on."""

    ids: np.ndarray  # [T]
    target_ids: np.ndarray | None  # [T], of an encoder-decoder alone
    token_text: TokenText  # of the tokens that the model predicts


class Codec(NamedTuple):
    """A vocabulary in use: a text's ids, a target's ids where there are targets, a token's text."""

    encode: Encode | None
    encode_target: Encode | None
    token_text: TokenText


def read_inputs(
    args: argparse.Namespace, place: Path, model_type: str, dump: Dump | None
) -> Inputs:
    """The ids given, as text or as ids, which must be those of the dump; or the dump's.

    Raises ValueError where there are none, where both sides' differ, and for a target that has no
    use; what the vocabulary raises, where a text needs one.
    """
    has_target = args.target is not None or args.target_ids is not None
    if has_target and model_type not in DIALECTS:
        raise ValueError(
            f"a target is what an encoder-decoder is to write, but {args.model!r} is a "
            f"{model_type}; leave out --target and --target-ids."
        )
    codec = _load_codec(args, place, model_type)
    text = None if args.text is None else cli.text_or_stdin(args.text)
    ids = _read_ids("ids", text, args.ids, codec.encode, dump, args.against)
    target_ids = None
    if model_type in DIALECTS:
        target = args.target, args.target_ids, codec.encode_target
        target_ids = _read_ids("target_ids", *target, dump, args.against)
    return Inputs(ids, target_ids, codec.token_text)


def _read_ids(
    name: str,
    text: str | None,
    listed: str | None,
    encode: Encode | None,
    dump: Dump | None,
    path: str | None,
) -> np.ndarray:
    dumped = None if dump is None or path is None else ids_in(dump, path, name)
    if listed is not None:
        ids = np.array(cli.parse_ids(listed))
    elif text is not None and encode is not None:
        ids = np.array(encode(text))
    elif dumped is not None:
        ids = dumped
    else:
        raise ValueError(
            f"give {OPTIONS[name]} to compare on, or a file with {name!r} in it (--against FILE)."
        )
    if dumped is not None and not np.array_equal(ids, dumped):
        raise ValueError(
            f"{path}: its {name!r} {_shown(dumped)} are not those given here, {_shown(ids)}; "
            "leave these out to take the file's."
        )
    if ids.size == 0:
        raise ValueError(f"there are no tokens to compare on; give {OPTIONS[name]}.")
    return ids


def _shown(ids: np.ndarray) -> str:
    return " ".join(map(str, ids[:8])) + (" …" if len(ids) > 8 else "")


def _load_codec(args: argparse.Namespace, place: Path, model_type: str) -> Codec:
    """The model's vocabulary. Only a text needs it; otherwise it adds token texts to the report.

    Loaded by the model's name, not from `place`: on the hub it is downloaded only now, because not
    every model that can be compared has one.
    """
    nothing = Codec(None, None, lambda _: None)
    is_text = args.text is not None or args.target is not None
    if not is_text and args.against is None and (args.dump is not None or args.list):
        return nothing
    try:
        if model_type in FAMILIES:
            return _word_pieces(args)
        return _source_and_target(args, place) if model_type in DIALECTS else _left_to_right(args)
    except (ValueError, OSError, ImportError):
        if is_text:
            raise
        return nothing


def _counted(encode: Encode, tokenizer: HasUnknown) -> Encode:
    """`encode` that warns of unknown tokens."""

    def encoded(text: str) -> list[int]:
        ids = encode(text)
        warn_of_unknown(ids, tokenizer)
        return ids

    return encoded


def _left_to_right(args: argparse.Namespace) -> Codec:
    from npgpt.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(args.model, revision=args.revision)

    def token_text(token: int) -> str | None:
        found = tokenizer.bytes_of.get(token)
        return None if found is None else found.decode("utf-8", errors="replace")

    return Codec(_counted(tokenizer.encode, tokenizer), None, token_text)


def _word_pieces(args: argparse.Namespace) -> Codec:
    from npgpt.text.word_pieces import load_word_pieces

    pieces = load_word_pieces(args.model, revision=args.revision)
    return Codec(_counted(pieces.encode, pieces), None, pieces.tokenizer.id_to_token)


def _source_and_target(args: argparse.Namespace, place: Path) -> Codec:
    from npgpt.text.seq2seq import load_seq2seq_tokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # loading the model says the same
        config = read_config(TransformerConfig, place / "config.json")
    tokenizer = load_seq2seq_tokenizer(args.model, config, revision=args.revision)

    def token_text(token: int) -> str | None:
        try:
            return tokenizer.decode([token]) or None
        except ValueError:  # no such piece
            return None

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text.rstrip("\n"))  # stdin ends with one

    encode_target = _counted(tokenizer.encode_target, tokenizer)
    return Codec(_counted(encode, tokenizer), encode_target, token_text)
