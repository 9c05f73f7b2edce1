"""A folder's vocabulary -> the bytes and ids of its tokens, special tokens, added words.

Takes `vocab.json` + `merges.txt`, or `tokenizer.json` alone, and refuses what would make the ids
differ from GPT-2's way. Left out: other kinds of tokenizer (WordPiece, SentencePiece), and split
patterns that `split_patterns.py` does not know.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from npgpt.text.byte_pairs import byte_alphabet, bytes_of_products, bytes_of_ranked
from npgpt.text.split_patterns import split_pattern
from npgpt.text.text_pieces import GPT2_SPLIT
from npgpt.text.vocabulary_files import (
    MarkedToken,
    Merges,
    expect,
    is_id,
    marked_tokens,
    merges_by_index,
    merges_by_line,
    read_object,
)


class Vocabulary(NamedTuple):
    """What `read_vocabulary` found."""

    ranks: dict[bytes, int]  # single bytes and merge products, whose ids rise in merge order
    special: dict[str, int]  # tokens that stand for more than their text, such as <|endoftext|>
    added: dict[str, int]  # words added after training, which are cut out of a text before BPE
    pattern: str  # a regular expression for the pieces in which BPE merges


def read_vocabulary(folder: Path) -> Vocabulary:
    """Read and check the vocabulary files; `vocab.json` + `merges.txt` go before `tokenizer.json`.

    A token that is neither a byte nor the product of a merge cannot come out of a text: it counts
    as special, unless a file marks it as a plain added word.

    Raises FileNotFoundError when the vocabulary is missing; ValueError when a file is malformed,
    files contradict each other, or the tokenizer that they describe splits or merges otherwise than
    GPT-2's. Warns when Hugging Face would put special tokens around every text.
    """
    whole = read_object(folder / "tokenizer.json")
    config = read_object(folder / "tokenizer_config.json")
    pattern = GPT2_SPLIT
    if whole:
        _refuse_other_models(whole, folder / "tokenizer.json")
        pattern = split_pattern(whole.get("pre_tokenizer"), folder / "tokenizer.json")
    if config.get("add_prefix_space"):
        path = folder / "tokenizer_config.json"
        raise ValueError(f"{path} asks for add_prefix_space, which npgpt does not do.")
    _warn_of_framing(folder, whole, config)
    vocab, path, merges, where = _vocab_and_merges(folder, whole)
    marked = marked_tokens(folder, whole, config)
    ranked = bool(whole and whole["model"].get("ignore_merges"))
    return assemble(vocab, merges, marked, pattern, path, where, ranked=ranked)


def assemble(
    vocab: dict[str, Any],
    merges: Merges,
    marked: dict[str, MarkedToken],
    pattern: str,
    path: Path,
    where: str,
    *,
    ranked: bool,
) -> Vocabulary:
    """The vocabulary of these tokens (token -> id), merges and marks; checks as `read_vocabulary`.

    `ranked`: see `bytes_of_ranked`. Errors name `path` for the tokens, `where` for the merges.
    """
    _check_ids(vocab, path)
    if ranked:
        plain = {token: vocab[token] for token in vocab.keys() - marked.keys()}
        made = bytes_of_ranked(plain, merges, where)
    else:
        made = bytes_of_products(vocab, merges, where)
    if not made:
        raise ValueError(f"{path} has no token for any single byte, so it can encode no text.")
    _check_marked(marked, vocab, made, path)
    special = _whole_tokens(vocab.keys() - made.keys() - marked.keys(), vocab, path)
    special |= {text: token.id for text, token in marked.items() if token.is_special}
    added = {text: token.id for text, token in marked.items() if not token.is_special}
    return Vocabulary({made[token]: vocab[token] for token in made}, special, added, pattern)


def _vocab_and_merges(
    folder: Path, whole: dict[str, Any]
) -> tuple[dict[str, Any], Path, Merges, str]:
    """Token -> id and the file it comes from; the merges and where they stand."""
    path, merges_path = folder / "vocab.json", folder / "merges.txt"
    if path.exists() and merges_path.exists():
        where = f"{merges_path} line"
        return read_object(path), path, merges_by_line(merges_path, where), where
    path = folder / "tokenizer.json"
    if whole:
        where = f"{path}: model.merges"
        vocab = expect(dict, whole["model"].get("vocab"), f"{path}: model.vocab")
        listed = expect(list, whole["model"].get("merges"), where)
        return vocab, path, merges_by_index(listed, where), where
    raise FileNotFoundError(
        f"{folder} has no vocabulary to read text with: add vocab.json and merges.txt, or "
        "tokenizer.json, or give token ids instead of text (--ids)."
    )


def _refuse_other_models(whole: dict[str, Any], path: Path) -> None:
    model = expect(dict, whole.get("model"), f"{path}: model")
    for name, found, wanted in (
        ("model.type", model.get("type") or "BPE", "BPE"),
        ("model.byte_fallback", model.get("byte_fallback") or False, False),
        ("model.dropout", model.get("dropout") or None, None),
        ("model.continuing_subword_prefix", model.get("continuing_subword_prefix") or None, None),
        ("model.end_of_word_suffix", model.get("end_of_word_suffix") or None, None),
        ("normalizer", whole.get("normalizer"), None),
    ):
        if found != wanted:
            raise ValueError(
                f"{path}: {name} is {found!r:.60}, but npgpt reads text as GPT-2 does: {wanted!r}."
            )


def _warn_of_framing(folder: Path, whole: dict[str, Any], config: dict[str, Any]) -> None:
    where = f"{folder / 'tokenizer.json'}: post_processor"
    post = expect(dict, whole.get("post_processor") or {}, where)
    steps = expect(list, post.get("processors") or [post], where)
    framing = any(
        step.get("type") in ("BertProcessing", "RobertaProcessing") or step.get("special_tokens")
        for step in (expect(dict, step, where) for step in steps)
    )
    if framing or (not whole and (config.get("add_bos_token") or config.get("add_eos_token"))):
        warnings.warn(
            f"{folder}: Hugging Face puts special tokens around every text for this model, npgpt "
            "does not: write them into the text and pass allowed_special='all', or add their ids.",
            UserWarning,
            stacklevel=2,
        )


def _check_ids(vocab: dict[str, Any], path: Path) -> None:
    owner: dict[int, str] = {}
    for token, token_id in vocab.items():
        if not is_id(token_id):
            raise ValueError(f"{path}: the id of {token!r} is {token_id!r}, not an integer >= 0.")
        if owner.setdefault(token_id, token) != token:
            raise ValueError(f"{path}: {owner[token_id]!r} and {token!r} share the id {token_id}.")


def _check_marked(
    marked: dict[str, MarkedToken], vocab: dict[str, int], made: dict[str, bytes], path: Path
) -> None:
    owner = {token_id: token for token, token_id in vocab.items()}
    for text, token in marked.items():
        if owner.setdefault(token.id, text) != text or vocab.get(text, token.id) != token.id:
            raise ValueError(
                f"{path.parent}: the added token {text!r} has the id {token.id}, which {path.name} "
                "or another added token contradicts."
            )
        if made.get(text, text.encode("utf-8")) != text.encode("utf-8"):
            raise ValueError(
                f"{path}: {text!r} is an added token, but the vocabulary uses it for other bytes."
            )


def _whole_tokens(tokens: Iterable[str], vocab: dict[str, int], path: Path) -> dict[str, int]:
    """Text -> id of tokens that no merge makes, but that are written in the byte alphabet."""
    alphabet, whole = byte_alphabet(), {}
    for token in tokens:
        if not token or set(token) - alphabet.keys():
            raise ValueError(f"{path}: the token {token!r} is not in GPT-2's byte alphabet.")
        try:
            whole[b"".join(alphabet[char] for char in token).decode("utf-8")] = vocab[token]
        except UnicodeDecodeError:
            raise ValueError(
                f"{path}: no merge makes the token {token!r}, and it is no text."
            ) from None
    return whole
