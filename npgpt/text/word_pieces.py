"""BERT's vocabulary: text <-> ids by word pieces, through the package tokenizers.

A folder's tokenizer.json is taken as it is. For a vocab.txt, BERT's own steps are put together:
clean, lower the case if the folder says so, cut at spaces and punctuation, then take the longest
piece that the vocabulary has. For vocab.json and merges.txt, RoBERTa's: GPT-2's byte pairs, and
other names for the tokens of a text's frame. A text is neither padded nor shortened.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from npgpt.files.hub import find_model
from npgpt.text.foreign import failures_named, package, read_tokenizer_json
from npgpt.text.split_patterns import well_formed
from npgpt.text.tokenizer_config import (
    add_listed_tokens,
    read_tokenizer_config,
    role_tokens,
    warn_of_settings,
)

ROLES = ("unk_token", "cls_token", "sep_token", "pad_token", "mask_token")
BERTS = {role: f"[{role.removesuffix('_token').upper()}]" for role in ROLES}
ROBERTAS = dict(zip(ROLES, ("<unk>", "<s>", "</s>", "<pad>", "<mask>"), strict=True))
BYTE_PAIRS = ("add_prefix_space", "trim_offsets")  # settings of RoBERTa's; the latter for offsets
# tokenizer_config.json's name of a setting -> that of the package's normalizer
NORMALIZER = {
    "tokenize_chinese_chars": "handle_chinese_chars",
    "strip_accents": "strip_accents",
    "do_lower_case": "lowercase",
}


class WordPieces(NamedTuple):
    """A tokenizer that puts [CLS] and [SEP] around a text, its mask token and unknown token."""

    source: Path
    tokenizer: Any  # a tokenizers.Tokenizer
    mask_token: str
    mask_id: int
    unknown_token: str

    def encode(self, text: str) -> list[int]:
        """Text -> ids, [CLS] and [SEP] around them; ValueError where the vocabulary cannot."""
        with failures_named(str(self.source)):
            ids: list[int] = self.tokenizer.encode(well_formed(text)).ids
        return ids

    @property
    def unknown(self) -> tuple[int, str] | None:
        """Id and text of the token for what the vocabulary lacks."""
        number = self.tokenizer.token_to_id(self.unknown_token)
        return None if number is None else (number, self.unknown_token)


def load_word_pieces(name: str | os.PathLike[str], *, revision: str | None = None) -> WordPieces:
    """The word pieces of a model: a folder, `weights/NAME`, or a hub id (at `revision`).

    Raises ImportError without the package tokenizers, FileNotFoundError for a missing vocabulary,
    ValueError for one that is malformed or has no mask token.
    """
    package("BERT's word pieces need the package tokenizers")
    folder = find_model(name, revision, files=("tokenizer",))
    whole, vocabulary = folder / "tokenizer.json", folder / "vocab.txt"
    merges = folder / "merges.txt"
    settings = read_tokenizer_config(folder)
    of_byte_pairs = () if vocabulary.is_file() else BYTE_PAIRS
    warn_of_settings(folder, settings, *NORMALIZER, *of_byte_pairs)
    named, spaced = role_tokens(folder, settings), bool(settings.get("add_prefix_space"))
    roles = BERTS | named
    steps = {NORMALIZER[key]: settings[key] for key in NORMALIZER if settings.get(key) is not None}
    if whole.is_file():
        source, (tokenizer, _) = whole, read_tokenizer_json(whole)
        for step, value in steps.items():
            if hasattr(tokenizer.normalizer, step):
                setattr(tokenizer.normalizer, step, value)
        if spaced and hasattr(tokenizer.pre_tokenizer, "add_prefix_space"):
            tokenizer.pre_tokenizer.add_prefix_space = True
        if tokenizer.token_to_id(roles["mask_token"]) is None:
            roles = ROBERTAS | named
    elif vocabulary.is_file():
        source, tokenizer = vocabulary, _from_vocabulary(vocabulary, roles, steps)
    elif merges.is_file():
        roles = ROBERTAS | named
        source, tokenizer = merges, _from_merges(merges, roles, add_prefix_space=spaced)
    else:
        raise FileNotFoundError(
            f"{folder} has neither tokenizer.json nor vocab.txt nor merges.txt, so there are no "
            "word pieces; give ids instead of text, or copy the vocabulary into the folder."
        )
    add_listed_tokens(tokenizer, folder, settings)
    mask_token = roles["mask_token"]
    mask_id = tokenizer.token_to_id(mask_token)
    if mask_id is None:
        raise ValueError(
            f"{source} has no mask token {mask_token!r:.60}, so nothing can be masked."
        )
    return WordPieces(source, tokenizer, mask_token, mask_id, roles["unk_token"])


def _from_vocabulary(path: Path, roles: dict[str, str], steps: dict[str, bool]) -> Any:
    """BERT's tokenizer with the pieces that a vocab.txt lists, one a line, ids from 0."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows editors put a byte order mark
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error.reason} at byte {error.start}.") from None
    pieces = [line.rstrip() for line in text.removesuffix("\n").split("\n")]
    ids = {piece: n for n, piece in enumerate(pieces)}
    if len(ids) != len(pieces):
        raise ValueError(f"{path}: {len(pieces) - len(ids)} of its lines stand there twice.")
    special = [roles[role] for role in ROLES]
    if missing := [repr(token)[1:-1] for token in special if token not in ids]:
        raise ValueError(f"{path} lacks {', '.join(missing):.99}, without which BERT cannot read.")

    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=roles["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(**steps)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(special)
    return _framed(tokenizer, roles)


def _from_merges(path: Path, roles: dict[str, str], *, add_prefix_space: bool) -> Any:
    """RoBERTa's tokenizer: byte pairs as in GPT-2, by this merges.txt and the vocab.json beside."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    with failures_named(str(path)):
        model = models.BPE.from_file(str(path.with_name("vocab.json")), str(path))
    tokenizer = Tokenizer(model)
    if missing := [token for token in roles.values() if tokenizer.token_to_id(token) is None]:
        raise ValueError(f"{path.with_name('vocab.json')} lacks {', '.join(missing):.99}.")
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    mask = roles["mask_token"]  # takes the space before it along, as a word does
    tokenizer.add_special_tokens([token for token in roles.values() if token != mask])
    tokenizer.add_special_tokens([AddedToken(mask, lstrip=True)])
    return _framed(tokenizer, roles)


def _framed(tokenizer: Any, roles: dict[str, str]) -> Any:
    """The tokenizer, which puts its first and last token around a text from now on."""
    from tokenizers import processors

    start, end = roles["cls_token"], roles["sep_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} $B:1 {end}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (start, end)],
    )
    return tokenizer
