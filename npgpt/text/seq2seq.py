"""The vocabulary of an encoder-decoder: characters in config.json, or Marian's word pieces.

BART's byte pairs are not read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from npgpt.files.hub import find_model
from npgpt.files.io import parse_json
from npgpt.models.transformer.config import TransformerConfig

END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"  # Marian's
LANGUAGE = re.compile(r">>.*?<<")  # which language to write, for models that know several
UNKNOWN_CHARACTER = 3  # the last of the four marks: padding, begin, end, unknown


class Seq2SeqTokenizer(Protocol):
    """Source text -> ids, target text <-> ids; both end with the end of the text."""

    def encode(self, text: str) -> list[int]: ...

    def encode_target(self, text: str) -> list[int]: ...

    def decode(self, ids: Iterable[int]) -> str: ...


def load_seq2seq_tokenizer(
    name: str | os.PathLike[str], config: TransformerConfig, *, revision: str | None = None
) -> Seq2SeqTokenizer:
    """The tokenizer of the model `name`, whose configuration this is.

    Raises ValueError for a model whose vocabulary is not read here, else as
    `load_marian_tokenizer`.
    """
    if "grapheme_chars" in config.other:
        return CharacterTables(config)
    if config.model_type == "marian":
        return load_marian_tokenizer(name, revision=revision)
    folder = find_model(name, revision, files=("config",))
    raise ValueError(
        f"{folder} is a {config.model_type}, whose vocabulary is not read here; token ids need "
        "none."
    )


class CharacterTables:
    """Letters -> ids, phonemes <-> ids, of a model from spelling to sound.

    Its config.json has `grapheme_chars` and `phoneme_chars`: a character's place is its id, and the
    first four places are marks.
    """

    def __init__(self, config: TransformerConfig) -> None:
        """Raises ValueError for a configuration without both tables."""
        tables = [config.other.get(key) for key in ("grapheme_chars", "phoneme_chars")]
        if not all(isinstance(table, str) for table in tables):
            raise ValueError("config.json has no grapheme_chars and phoneme_chars.")
        self.letters, self.phonemes = map(str, tables)
        self.begin, self.end = config.bos_token_id, config.eos_token_id

    def encode(self, text: str) -> list[int]:
        """Begin, the letters, end; a letter without a place is unknown."""
        return self._between_marks(text, self.letters)

    def encode_target(self, text: str) -> list[int]:
        """Begin, the phonemes, end: what such a model writes, its begin included."""
        return self._between_marks(text, self.phonemes)

    def decode(self, ids: Iterable[int]) -> str:
        """The phonemes, without marks."""
        return "".join(self.phonemes[i] for i in ids if UNKNOWN_CHARACTER < i < len(self.phonemes))

    def _between_marks(self, text: str, table: str) -> list[int]:
        found = [table.find(character, UNKNOWN_CHARACTER + 1) for character in text]
        ids = [UNKNOWN_CHARACTER if place < 0 else place for place in found]
        marks = [[mark] if type(mark) is int else [] for mark in (self.begin, self.end)]
        return [*marks[0], *ids, *marks[1]]


class MarianTokenizer:
    """Text of the source language -> ids, text of the target language <-> ids.

    Two SentencePiece models cut text into pieces, two tables number them, often the same one.
    Punctuation is not cleaned up as transformers does where sacremoses is installed.
    """

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
        return _numbered(pieces, self.source_ids)

    def encode_target(self, text: str) -> list[int]:
        """Ids of a text of the target language, and its end."""
        return _numbered(self.target_spm.encode(text, out_type=str), self.target_ids)

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


def _numbered(pieces: list[str], ids: dict[str, int]) -> list[int]:
    return [*(ids.get(piece, ids[UNKNOWN]) for piece in pieces), ids[END]]


def load_marian_tokenizer(
    name: str | os.PathLike[str], *, revision: str | None = None
) -> MarianTokenizer:
    """The tokenizer in a folder, in `weights/NAME` or on the hub.

    A folder has `source.spm`, `target.spm` and `vocab.json`; `target_vocab.json` too where the two
    languages are numbered apart.

    Raises ImportError without sentencepiece, FileNotFoundError for a missing file, ValueError for
    one that is wrong, naming it.
    """
    try:
        import sentencepiece
    except ImportError:
        raise ImportError(
            'a Marian vocabulary needs SentencePiece: pip install "npgpt[spm]"'
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
