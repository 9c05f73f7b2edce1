"""Marian's vocabulary: two SentencePiece models cut text into pieces, vocab.json numbers them.

A folder has `source.spm`, `target.spm` and `vocab.json`; `target_vocab.json` too where the two
languages are numbered apart. Needs the package sentencepiece (extra `spm`). Leaves out the clean-up
of punctuation that transformers does where sacremoses is installed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from npgpt.files.hub import find_model
from npgpt.files.io import parse_json

END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"
LANGUAGE = re.compile(r">>.*?<<")  # which language to write, for models that know several


class MarianTokenizer:
    """Text of the source language -> ids, text of the target language <-> ids."""

    def __init__(
        self, source_spm: Any, target_spm: Any, source: dict[str, int], target: dict[str, int]
    ) -> None:
        self.source_spm, self.target_spm = source_spm, target_spm
        self.source_ids, self.target_ids = source, target
        self.target_pieces = {number: piece for piece, number in target.items()}

    def encode(self, text: str) -> list[int]:
        """Ids of the text's pieces, and the end of the text.

        A `>>language<<` in front is one piece; pieces without a number are <unk>.
        """
        language = LANGUAGE.match(text)
        code = [language[0]] if language else []
        pieces = code + self.source_spm.encode(text[len("".join(code)) :], out_type=str)
        unknown = self.source_ids[UNKNOWN]
        return [*(self.source_ids.get(piece, unknown) for piece in pieces), self.source_ids[END]]

    def encode_target(self, text: str) -> list[int]:
        """Ids of a text of the target language, and its end."""
        pieces, ids = self.target_spm.encode(text, out_type=str), self.target_ids
        return [*(ids.get(piece, ids[UNKNOWN]) for piece in pieces), ids[END]]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids, without marks such as the end of the text.

        Raises ValueError for an id without a piece.
        """
        pieces = []
        for number in ids:
            if number not in self.target_pieces:
                raise ValueError(f"id {number} has no piece in the target's vocabulary.")
            pieces.append(self.target_pieces[number])
        kept = [piece for piece in pieces if piece not in (END, UNKNOWN, PAD)]
        text: str = self.target_spm.decode_pieces(kept)
        return text.replace("▁", " ").strip()


def load_marian_tokenizer(
    name: str | os.PathLike[str], *, revision: str | None = None
) -> MarianTokenizer:
    """The tokenizer in a folder, in `weights/NAME` or on the hub.

    Raises ImportError without sentencepiece, FileNotFoundError for a missing file, ValueError for
    one that is wrong, naming it.
    """
    try:
        import sentencepiece
    except ImportError:
        raise ImportError(
            "Marian's vocabulary needs SentencePiece: pip install 'npgpt[spm]'"
        ) from None
    folder = find_model(name, revision, files=("spm",))

    def pieces_of(file: str) -> Any:
        path = folder / file
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing; a Marian model's folder has source.spm, target.spm and "
                "vocab.json."
            )
        model = sentencepiece.SentencePieceProcessor()
        try:
            model.LoadFromSerializedProto(path.read_bytes())
        except RuntimeError as error:
            raise ValueError(f"{path} is no SentencePiece model.") from error
        return model

    spm = pieces_of("source.spm"), pieces_of("target.spm")
    source = _vocabulary(folder / "vocab.json")
    apart = folder / "target_vocab.json"
    return MarianTokenizer(*spm, source, _vocabulary(apart) if apart.is_file() else source)


def _vocabulary(path: Path) -> dict[str, int]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; it numbers the pieces.")
    table = parse_json(path.read_bytes(), str(path))
    if not isinstance(table, dict) or any(type(number) is not int for number in table.values()):
        raise ValueError(f"{path}: is no table from pieces to whole numbers.")
    if missing := [mark for mark in (END, UNKNOWN) if mark not in table]:
        raise ValueError(f"{path}: has no {missing[0]!r}.")
    return table
