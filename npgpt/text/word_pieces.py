"""BERT's vocabulary: text <-> ids by word pieces, through the `tokenizers` package (extra `bert`).

A folder's tokenizer.json is taken as it is. For a vocab.txt, BERT's own steps are put together:
clean, lower the case if the folder says so, cut at spaces and punctuation, then take the longest
piece that the vocabulary has. A text is neither padded nor shortened.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from npgpt.files.hub import find_model
from npgpt.text.vocabulary import read_object

ENCODING = "utf-8-sig"  # UTF-8 with or without the byte order mark that Windows editors put
ROLES = ("unk_token", "cls_token", "sep_token", "pad_token", "mask_token")


class WordPieces(NamedTuple):
    """A tokenizer that puts [CLS] and [SEP] around a text, and its mask token."""

    tokenizer: Any  # a tokenizers.Tokenizer
    mask_token: str
    mask_id: int


def load_word_pieces(name: str | os.PathLike[str], *, revision: str | None = None) -> WordPieces:
    """The word pieces of a model: a folder, `weights/NAME`, or a hub id (at `revision`).

    Raises ImportError without the `tokenizers` package, FileNotFoundError for a missing vocabulary,
    ValueError for one that is malformed or has no mask token.
    """
    try:
        import tokenizers
    except ImportError:
        raise ImportError(
            'word pieces need the package tokenizers: pip install "npgpt[bert]"'
        ) from None
    folder = find_model(name, revision, files=("tokenizer",))
    whole, vocabulary = folder / "tokenizer.json", folder / "vocab.txt"
    settings = read_object(folder / "tokenizer_config.json")
    if whole.is_file():
        try:
            tokenizer = tokenizers.Tokenizer.from_str(whole.read_text(encoding=ENCODING))
        except Exception as error:  # the package raises nothing more precise
            raise ValueError(f"{whole} is not a tokenizer that can be read ({error}).") from error
        source = whole
    elif vocabulary.is_file():
        tokenizer, source = _from_vocabulary(vocabulary, settings), vocabulary
    else:
        raise FileNotFoundError(
            f"{folder} has neither tokenizer.json nor vocab.txt, so there are no word pieces; give "
            "ids instead of text, or copy the vocabulary into the folder."
        )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    mask_token = _special("mask_token", settings)
    mask_id = tokenizer.token_to_id(mask_token)
    if mask_id is None:
        raise ValueError(f"{source} has no mask token {mask_token!r}, so nothing can be masked.")
    return WordPieces(tokenizer, mask_token, mask_id)


def _from_vocabulary(path: Path, settings: dict[str, Any]) -> Any:
    """BERT's tokenizer with the pieces that a vocab.txt lists, one a line, ids from 0."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    pieces = path.read_text(encoding=ENCODING).removesuffix("\n").split("\n")
    ids = {piece.removesuffix("\r"): n for n, piece in enumerate(pieces)}
    if len(ids) != len(pieces):
        raise ValueError(f"{path}: {len(pieces) - len(ids)} of its lines stand there twice.")
    special = {role: _special(role, settings) for role in ROLES}
    if missing := [token for token in special.values() if token not in ids]:
        raise ValueError(f"{path} lacks {', '.join(missing)}, without which BERT cannot read.")

    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=special["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    start, end = special["cls_token"], special["sep_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} $B:1 {end}:1",
        special_tokens=[(start, ids[start]), (end, ids[end])],
    )
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([*special.values()])
    return tokenizer


def _special(role: str, settings: dict[str, Any]) -> str:
    """The text of a special token: "[MASK]" for mask_token, unless the settings say otherwise."""
    token = settings.get(role)
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else f"[{role.removesuffix('_token').upper()}]"
