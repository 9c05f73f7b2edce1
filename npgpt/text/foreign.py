"""Vocabularies of other kinds than GPT-2's, through the package tokenizers (extra `tokenizers`).

SentencePiece-like BPE with byte fallback (Llama 2, Mistral), Unigram, words, characters, BPE with
other split patterns: whatever the package reads from a tokenizer.json. Special tokens are put
around a text as that file says, so that the ids are those of transformers.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from npgpt.files.io import parse_json
from npgpt.text.byte_pairs import byte_alphabet, joined_bytes
from npgpt.text.split_patterns import cut_tokens, names_of, well_formed
from npgpt.text.tokenizer_config import (
    add_listed_tokens,
    read_tokenizer_config,
    role_tokens,
    warn_of_settings,
)

BYTE = re.compile("<0x[0-9A-F]{2}>")  # a token that stands for one byte


def package(why: str) -> Any:
    """The package tokenizers; ImportError, which begins with `why`, where it is missing."""
    try:
        import tokenizers
    except ImportError:
        raise ImportError(f'{why}: pip install "npgpt[tokenizers]"') from None
    return tokenizers


@contextlib.contextmanager
def failures_named(where: str) -> Iterator[None]:
    """Turn what the package raises, which may be a panic of Rust's, into a ValueError."""
    try:
        yield
    except BaseException as error:  # a panic is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ValueError(f"{where}: the package tokenizers fails: {reason}.") from None


def read_tokenizer_json(path: Path) -> tuple[Any, dict[str, Any]]:
    """The tokenizer in a tokenizer.json, which neither pads nor cuts a text; and its `model`.

    Raises ValueError for one that cannot be read, is different each time (dropout), or has two
    tokens of one id.
    """
    raw = path.read_bytes()
    whole = parse_json(raw, str(path))
    try:
        tokenizer = package("").Tokenizer.from_str(raw.decode("utf-8-sig"))
    except Exception as error:  # the package raises nothing more precise
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is not a tokenizer that can be read ({reason:.200}).") from error
    model: dict[str, Any] = whole["model"]
    if model.get("dropout"):
        raise ValueError(f"{path}: model.dropout is {model['dropout']}, so ids are left to chance.")
    vocab = model.get("vocab")
    if isinstance(vocab, dict) and len({*vocab.values()}) < len(vocab):
        raise ValueError(f"{path}: two tokens of model.vocab share an id.")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer, model


def read_foreign(folder: Path) -> ForeignTokenizer:
    """The tokenizer of a folder's tokenizer.json, with what the files beside it say.

    Raises ImportError without the package, ValueError for files that are malformed, or contradict
    each other.
    """
    tokenizer, model = read_tokenizer_json(folder / "tokenizer.json")
    settings = read_tokenizer_config(folder)
    warn_of_settings(folder, settings, "add_bos_token", "add_eos_token", "add_prefix_space")
    if settings.get("add_prefix_space") and hasattr(tokenizer.pre_tokenizer, "add_prefix_space"):
        tokenizer.pre_tokenizer.add_prefix_space = True
    add_listed_tokens(tokenizer, folder, settings)
    roles = role_tokens(folder, settings)
    unknown = model.get("unk_id")
    if unknown is None and model.get("unk_token") is not None:
        unknown = tokenizer.token_to_id(model["unk_token"])
    end = tokenizer.token_to_id(roles["eos_token"]) if "eos_token" in roles else None
    read = ForeignTokenizer(str(folder), tokenizer, unknown=unknown, end_of_text=end)
    for role, given in zip(("bos_token", "eos_token"), read.frame, strict=True):
        asked = settings.get(f"add_{role}")
        if asked is not None and asked != bool(given):
            text = f"{folder}: add_{role} is {asked}, but tokenizer.json does otherwise and counts."
            warnings.warn(text, UserWarning, stacklevel=3)
    return read


class ForeignTokenizer:
    """A `tokenizers.Tokenizer` with the methods that a `npgpt.text.tokenizer.Tokenizer` has.

    Attributes:
        name: where it comes from, for errors.
        unknown: id and text of the token for what the vocabulary lacks, None if there is none.
        end_of_text: the id that ends a text, as far as the files say.
        special_ids: tokens that are found in a text only on request.
        added_words: tokens that were added later and are found in every text.
        frame: the ids put before a text, and behind it.
    """

    def __init__(
        self, name: str, tokenizer: Any, *, unknown: int | None, end_of_text: int | None
    ) -> None:
        self.name, self._tokenizer = name, tokenizer
        self.unknown = None if unknown is None else (unknown, tokenizer.id_to_token(unknown))
        self.end_of_text = end_of_text
        added = tokenizer.get_added_tokens_decoder()
        self.special_ids = frozenset(n for n, token in added.items() if token.special)
        self.special_tokens_set: frozenset[str] = frozenset(
            added[n].content for n in self.special_ids
        )
        self.added_words = frozenset(t.content for t in added.values() if not t.special)
        with failures_named(name):
            self.frame = self._frame()

    @cached_property
    def rules(self) -> str:
        """Everything that makes ids out of a text."""
        return str(self._tokenizer.to_str())

    @cached_property
    def bytes_of(self) -> dict[int, bytes]:
        """Token id -> its bytes within a text; a space that a text begins with may not be there.

        What a token adds depends on its neighbours, so each is decoded between two others.
        """
        tokens = {n: text for text, n in self._tokenizer.get_vocab(with_added_tokens=True).items()}
        decoder = self._tokenizer.decoder
        steps = decoder.__getstate__() if decoder else b""
        alphabet = byte_alphabet() if b'"ByteLevel"' in steps else {}
        found: dict[int, bytes] = {}
        for n, text in tokens.items():
            if b'"ByteFallback"' in steps and BYTE.fullmatch(text):
                found[n] = bytes([int(text[3:5], 16)])
            elif alphabet and alphabet.keys() >= set(text):
                found[n] = b"".join(alphabet[char] for char in text)
        rest = sorted(tokens.keys() - found.keys())
        return found | dict(zip(rest, self._between(rest, tokens), strict=True))

    def _between(self, ids: Sequence[int], tokens: dict[int, str]) -> Iterator[bytes]:
        """The bytes that each token adds between two others."""
        if not ids:
            return
        decode = self._tokenizer.decode_batch
        words = [n for n in ids if tokens[n].isalnum()] or [*ids]
        pairs = decode([[n, n] for n in words], skip_special_tokens=False)
        # The other token is best one that brings no space of its own.
        other, pair = min(zip(words, pairs, strict=True), key=lambda x: " " in x[1])
        (alone,) = decode([[other]], skip_special_tokens=False)
        start, end = len(alone), len(pair) - len(alone)
        for text in decode([[other, n, other] for n in ids], skip_special_tokens=False):
            yield text[start : len(text) - end].encode("utf-8")

    def encode(
        self, text: str, *, allowed_special: Literal["all"] | Collection[str] = frozenset()
    ) -> list[int]:
        """Text -> ids, special tokens around them; those in the text are text unless "all".

        Raises ValueError for a set of some special tokens, and for a character that has no token
        where the vocabulary has no token for what it lacks.
        """
        allowed_special = names_of("allowed_special", allowed_special)
        if allowed_special not in ("all", frozenset()):
            raise ValueError(f"{self.name}: allowed_special may be 'all' or nothing.")
        text = well_formed(text)
        self._tokenizer.encode_special_tokens = allowed_special != "all"
        tokens = self.special_tokens_set if allowed_special == "all" else frozenset()
        with failures_named(self.name):
            ids = list(self._tokenizer.encode(text).ids)
        if self.unknown is None:
            for _, piece, is_token in cut_tokens(text, tokens | self.added_words):
                if not is_token:
                    self._check_complete(piece)
        return ids

    def _check_complete(self, text: str) -> None:
        """Raise ValueError for a character that BPE without an unknown token drops."""
        normalizer, split = self._tokenizer.normalizer, self._tokenizer.pre_tokenizer
        text = normalizer.normalize_str(text) if normalizer else text
        pieces = [piece for piece, _ in split.pre_tokenize_str(text)] if split else [text]
        tokenize = self._tokenizer.model.tokenize
        for piece in dict.fromkeys(pieces):
            offsets = [token.offsets for token in tokenize(piece)]
            if sum(end - start for start, end in offsets) < len(piece.encode("utf-8")):
                lost = next((char for char in piece if not tokenize(char)), piece)
                raise ValueError(
                    f"{lost!r} has no token in the vocabulary of {self.name}; leave it out."
                )

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        """Ids of a text from its beginning -> bytes; ValueError for an id without a token."""
        joined = joined_bytes(tokens, self.bytes_of, self.name)
        if joined.startswith(b" "):  # which the package may leave out at the start of a text
            first = self._tokenizer.decode([tokens[0]], skip_special_tokens=False)
            return joined if first.encode("utf-8") == self.bytes_of[tokens[0]] else joined[1:]
        return joined

    def decode(self, tokens: Sequence[int], errors: str = "replace") -> str:
        """Ids -> text, U+FFFD where it is not UTF-8; ValueError for an id without a token."""
        return self.decode_bytes(tokens).decode("utf-8", errors=errors)

    def _frame(self) -> tuple[list[int], list[int]]:
        """What is put around a text, seen with the first token that gives ids."""
        for text in ("a", *self._tokenizer.get_vocab(with_added_tokens=False)):
            inner = self._tokenizer.encode(text, add_special_tokens=False).ids
            whole = self._tokenizer.encode(text).ids
            for at in range(len(whole) - len(inner) + 1):
                if inner and whole[at : at + len(inner)] == inner:
                    return whole[:at], whole[at + len(inner) :]
        return [], []
