"""Text <-> token ids with the vocabulary of a model's own folder; no other is ever downloaded.

A `Tokenizer` is a `tiktoken.Encoding` made safe: where tiktoken panics, which is no Exception, it
raises ValueError or gives the ids all the same, and special tokens in a text are text unless asked
for. It puts no special tokens around a text. Vocabularies of other kinds are a `ForeignTokenizer`,
with the same methods. Neither applies a chat template or pads.
"""

from __future__ import annotations

import codecs
import os
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tiktoken

from npgpt.files.gguf_reader import read_gguf_header
from npgpt.files.hub import find_model
from npgpt.text.byte_pairs import joined_bytes
from npgpt.text.foreign import ForeignTokenizer, package, read_foreign
from npgpt.text.scored_pieces import read_scored_pieces
from npgpt.text.split_patterns import (
    GPT2_SPLIT,
    cut_long_space,
    cut_tokens,
    first_without,
    names_of,
    well_formed,
)
from npgpt.text.tokenizer_config import warn_of_gguf_settings
from npgpt.text.vocabulary import (
    OtherKind,
    Vocabulary,
    read_gguf_vocabulary,
    read_vocabulary,
)


def load_tokenizer(name: str | os.PathLike[str], *, revision: str | None = None) -> TextTokenizer:
    """The tokenizer of a model: a folder, `weights/NAME`, a hub id (at `revision`), a `.gguf` file.

    Raises what `npgpt.files.hub.find_model`, `tokenizer_from_folder`,
    `npgpt.text.vocabulary.read_gguf_vocabulary` and
    `npgpt.text.scored_pieces.read_scored_pieces` raise.
    """
    place = find_model(name, revision, files=("tokenizer",))
    if place.suffix != ".gguf":
        return tokenizer_from_folder(place)
    settings = read_gguf_header(place).settings
    warn_of_gguf_settings(place, settings)
    if settings.get("tokenizer.ggml.model") == "llama":
        return read_scored_pieces(place, settings)
    return _tokenizer(place, read_gguf_vocabulary(place, settings))


def tokenizer_from_folder(folder: Path) -> TextTokenizer:
    """The tokenizer that the vocabulary files in a local folder describe.

    Raises FileNotFoundError when they are missing, ValueError when they are malformed or contradict
    each other, ImportError when they need the package tokenizers, which is not there.
    """
    try:
        return _tokenizer(folder, read_vocabulary(folder))
    except OtherKind as error:
        if not (folder / "tokenizer.json").is_file():
            raise
        package(f"{error} Such a vocabulary needs the package tokenizers")
    return read_foreign(folder)


def _tokenizer(source: Path, vocabulary: Vocabulary) -> Tokenizer:
    ranks, special, added, splitting = vocabulary
    return Tokenizer(
        str(source),
        mergeable_ranks=ranks,
        special_tokens=special | added,
        added_words=added,
        pat_str=splitting.pattern,
        composed=splitting.composed,
    )


class Tokenizer(tiktoken.Encoding):
    """A `tiktoken.Encoding` that never panics and takes special tokens as text by default.

    `mergeable_ranks` are the tokens that BPE makes (bytes -> id), `special_tokens` all others
    (text -> id). Of these, `added_words` are found in every text, the rest only on request.
    `composed`: what lies between them is put into Unicode's NFC first.
    Lone surrogates in a text count as U+FFFD. `unknown` and `frame`: see `ForeignTokenizer`.
    """

    unknown: tuple[int, str] | None = None
    frame: tuple[Sequence[int], Sequence[int]] = ((), ())

    def __init__(
        self,
        name: str,
        *,
        mergeable_ranks: dict[bytes, int],
        special_tokens: dict[str, int],
        added_words: Collection[str] = (),
        pat_str: str = GPT2_SPLIT,
        composed: bool = False,
    ) -> None:
        super().__init__(
            name, pat_str=pat_str, mergeable_ranks=mergeable_ranks, special_tokens=special_tokens
        )
        self.added_words = frozenset(added_words)
        self.bytes_of = {token: text.encode("utf-8") for text, token in special_tokens.items()}
        self.bytes_of.update((token, text) for text, token in mergeable_ranks.items())
        self.special_ids = frozenset(
            special_tokens[t] for t in special_tokens.keys() - self.added_words
        )
        self.end_of_text = special_tokens.get("<|endoftext|>")
        self.composed = composed
        self.rules = f"NFC {pat_str}" if composed else pat_str
        self._single_bytes = bytes(b for b in range(256) if bytes([b]) in mergeable_ranks)

    def encode(
        self,
        text: str,
        *,
        allowed_special: Literal["all"] | Collection[str] = frozenset(),
        disallowed_special: Literal["all"] | Collection[str] = (),
    ) -> list[int]:
        """Text -> ids; `<|endoftext|>` is text unless `allowed_special` names it or is "all".

        Raises ValueError for a character with a byte that has no token, naming it and its place,
        and for a special token in the text that `disallowed_special` forbids.
        """
        text = well_formed(text)
        special = self.special_tokens_set
        allowed = names_of("allowed_special", allowed_special)
        disallowed = names_of("disallowed_special", disallowed_special)
        wanted = self.added_words | (special if allowed == "all" else special & allowed)
        forbidden = special if disallowed == "all" else disallowed
        if found := [token for token in forbidden - wanted if token in text]:
            raise ValueError(
                f"the text contains {found[0]!r}, which disallowed_special forbids; name it in "
                "allowed_special, or leave disallowed_special out to take it as text."
            )
        ids: list[int] = []
        for start, piece, is_token in cut_tokens(text, wanted):
            ids += [self._special_tokens[piece]] if is_token else self._encode_plain(piece, start)
        return ids

    def encode_ordinary(self, text: str) -> list[int]:
        """Text -> ids, special tokens as text; the same as `encode(text)`."""
        return self.encode(text)

    def encode_to_numpy(self, text: str, **options: Any) -> np.ndarray:
        """As `encode`, but uint32 [T]."""
        return np.array(self.encode(text, **options), dtype=np.uint32)

    def encode_batch(self, text: list[str], **options: Any) -> list[list[int]]:
        """As `encode`, for several texts in `num_threads` threads."""
        options = {"disallowed_special": (), **options}
        for name in options.keys() - {"num_threads"}:
            options[name] = names_of(name, options[name])
        return super().encode_batch(text, **options)

    def encode_with_unstable(self, text: str, **options: Any) -> tuple[list[int], list[list[int]]]:
        """As tiktoken's, after the checks of `encode`."""
        self.encode(text, **options)
        text = self._in_nfc(well_formed(text))
        allowed = names_of("allowed_special", options.get("allowed_special", ()))
        return super().encode_with_unstable(text, allowed_special=allowed, disallowed_special=())

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        """Ids -> bytes; ValueError for an id without a token, and for what is no id."""
        return joined_bytes(tokens, self.bytes_of, self.name)

    def decode(self, tokens: Sequence[int], errors: str = "replace") -> str:
        """Ids -> text, U+FFFD where it is not UTF-8; ValueError for an id without a token."""
        return self.decode_bytes(tokens).decode("utf-8", errors=errors)

    def _in_nfc(self, text: str) -> str:
        return unicodedata.normalize("NFC", text) if self.composed else text

    def _encode_plain(self, text: str, start: int) -> list[int]:
        text = self._in_nfc(text)
        at = first_without(text, self._single_bytes)
        if at is not None:
            raise ValueError(
                f"{text[at]!r} (U+{ord(text[at]):04X}), character {start + at} of the text counted "
                f"from 0, has no token in the vocabulary of {self.name}; leave it out."
            )
        encode = super().encode_ordinary
        return [token for piece in cut_long_space(text, self._pat_str) for token in encode(piece)]

    def __getstate__(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "pat_str": self._pat_str,
            "mergeable_ranks": self._mergeable_ranks,
            "special_tokens": self._special_tokens,
            "added_words": self.added_words,
            "composed": self.composed,
        }


TextTokenizer = Tokenizer | ForeignTokenizer


def decodable_ids(tokenizer: TextTokenizer, size: int) -> np.ndarray:
    """bool [size], True where an id has a token; a padded embedding has rows without one."""
    has_token = np.zeros(size, dtype=bool)
    has_token[[token for token in tokenizer.bytes_of if token < size]] = True
    return has_token


def stream_text(
    tokenizer: TextTokenizer, tokens: Iterable[int], after: Sequence[int] = ()
) -> Iterator[str]:
    """Text as the tokens come in: a piece once its characters are complete, never an empty one.

    A character may be spread over several tokens. The pieces join to what `tokens` add to the text
    of the ids `after` which they come; without, to `tokenizer.decode` of all tokens. So U+FFFD is
    only where bytes are not UTF-8. ValueError for an id without a token.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    begins = set(after) <= set(tokenizer.frame[0])
    for token in tokens:
        data = tokenizer.decode_bytes([token])
        if text := decoder.decode(data if begins else tokenizer.bytes_of[token]):
            yield text
        begins = False
    if text := decoder.decode(b"", final=True):
        yield text
