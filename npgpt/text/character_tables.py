"""Vocabularies of single characters that stand in config.json itself.

A model from spelling to sound has `grapheme_chars` and `phoneme_chars`: the place of a character is
its id, and the first four places are marks (padding, begin, end, unknown).
"""

from __future__ import annotations

from collections.abc import Iterable

from npgpt.models.transformer.config import TransformerConfig

UNKNOWN = 3  # the last of the marks


class CharacterTables:
    """Letters -> ids, phonemes <-> ids."""

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
        return "".join(self.phonemes[i] for i in ids if UNKNOWN < i < len(self.phonemes))

    def _between_marks(self, text: str, table: str) -> list[int]:
        found = [table.find(character, UNKNOWN + 1) for character in text]
        ids = [UNKNOWN if place < 0 else place for place in found]
        marks = [[mark] if type(mark) is int else [] for mark in (self.begin, self.end)]
        return [*marks[0], *ids, *marks[1]]
