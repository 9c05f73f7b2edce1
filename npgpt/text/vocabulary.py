"""A model's vocabulary files -> the bytes and ids of its tokens, special tokens, added words.

A folder has `vocab.json` + `merges.txt`, or `tokenizer.json` alone; a GGUF file has the settings
`tokenizer.ggml.*`. What is read is byte-level BPE. Whatever would make the ids differ from GPT-2's
way is refused, in an error that names the file and the place in it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from npgpt.files.kinds import is_id
from npgpt.text.byte_pairs import byte_alphabet, bytes_of_products, bytes_of_ranked
from npgpt.text.split_patterns import (
    CLASSES,
    GPT2_SPLIT,
    QWENS,
    SMOLLM_SPLIT,
    Splitting,
    named_splitting,
    written_pattern,
)
from npgpt.text.tokenizer_config import (
    expect,
    listed_tokens,
    read_object,
    read_tokenizer_config,
    special_texts,
    warn_of_settings,
)

Merges = dict[int, tuple[str, str]]  # line number or index -> the two parts, in order

# tokenizer.ggml.token_type; 1 is a usual token, 6 a byte
UNKNOWN, CONTROL, ADDED, UNUSED = 2, 3, 4, 5

NFC = {"type": "NFC"}  # the normalizer of Qwen, and the only one that npgpt knows


class OtherKind(ValueError):
    """A vocabulary that is not of GPT-2's kind; `npgpt.text.foreign` may read it."""


class Vocabulary(NamedTuple):
    """What `read_vocabulary` found."""

    ranks: dict[bytes, int]  # single bytes and merge products, whose ids rise in merge order
    special: dict[str, int]  # tokens that stand for more than their text, such as <|endoftext|>
    added: dict[str, int]  # words added after training, which are cut out of a text before BPE
    splitting: Splitting  # into the pieces in which BPE merges


class MarkedToken(NamedTuple):
    """A token that a file marks as added; special ones are found in a text only on request."""

    id: int
    is_special: bool


def read_vocabulary(folder: Path) -> Vocabulary:
    """Read and check a folder's vocabulary; `vocab.json` + `merges.txt` take precedence.

    A token that is neither a byte nor the product of a merge cannot come out of a text: it counts
    as special, unless a file marks it as a plain added word.

    Raises FileNotFoundError when the vocabulary is missing; ValueError when a file is malformed or
    files contradict each other; OtherKind when the tokenizer that they describe splits or merges
    otherwise than GPT-2's. Warns when Hugging Face would put special tokens around every text.
    """
    whole = read_object(folder / "tokenizer.json")
    config = read_tokenizer_config(folder)
    if whole:
        _refuse_other_models(whole, folder / "tokenizer.json")
    splitting = _splitting(whole, folder / "tokenizer.json") if whole else None
    if config.get("add_prefix_space"):
        path = folder / "tokenizer_config.json"
        raise OtherKind(f"{path} asks for add_prefix_space, which npgpt does not do.")
    vocab, path, merges, where = _vocab_and_merges(folder, whole)
    splitting = splitting or _splitting_of_class(folder, config)
    marked = _marked_tokens(folder, whole, config, composed=splitting.composed)
    vocabulary = _assemble(vocab, merges, marked, splitting, path, where)
    warn_of_settings(folder, config, "add_bos_token", "add_eos_token")
    if _frames_texts(folder, whole, config):
        _warn_of_framing(folder, "Hugging Face")
    return vocabulary


def read_gguf_vocabulary(path: Path, settings: Mapping[str, Any]) -> Vocabulary:
    """Tokens, merges and special tokens of a `.gguf` file with these settings.

    Raises ValueError for a tokenizer that is not byte-level BPE (which llama.cpp calls "gpt2"), or
    as `read_vocabulary` does. Warns where llama.cpp would put special tokens around every text, and
    where the file does not say how it cuts a text.
    """

    def setting(name: str) -> Any:
        return settings.get(f"tokenizer.ggml.{name}")

    if setting("model") != "gpt2":
        raise ValueError(
            f"{path}: tokenizer.ggml.model is {setting('model')!r:.60}, but npgpt reads 'gpt2', "
            "which is byte-level BPE, and 'llama', which is SentencePiece's; token ids need none."
        )
    if setting("pre") is None:
        text = f"{path} has no tokenizer.ggml.pre: a text is cut as GPT-2's is, other ids may come."
        warnings.warn(text, UserWarning, stacklevel=3)
    splitting = named_splitting(setting("pre") or "gpt-2", path)
    tokens = expect(list, setting("tokens"), f"{path}: tokenizer.ggml.tokens")
    where = f"{path}: tokenizer.ggml.merges"
    merges = _merges_by_index(expect(list, setting("merges"), where), where)
    if setting("add_bos_token") or setting("add_eos_token"):
        _warn_of_framing(path, "llama.cpp")
    vocab = {text: n for n, text in enumerate(tokens)}
    if len(vocab) < len(tokens):
        raise ValueError(f"{path}: tokenizer.ggml.tokens has the same token twice.")
    marked = {}
    for n, (text, kind) in enumerate(zip(tokens, setting("token_type") or [], strict=False)):
        if kind in (UNKNOWN, CONTROL, ADDED):
            marked[text] = MarkedToken(n, kind != ADDED)
        elif kind == UNUSED:  # a name for a row of the model's table that has no token
            del vocab[text]
    return _assemble(vocab, merges, marked, splitting, path, where)


def _assemble(
    vocab: dict[str, Any],
    merges: Merges,
    marked: dict[str, MarkedToken],
    splitting: Splitting,
    path: Path,
    where: str,
) -> Vocabulary:
    """The vocabulary of these tokens (token -> id), merges and marks; checks as `read_vocabulary`.

    Errors name `path` for the tokens, `where` for the merges.
    """
    _check_ids(vocab, path)
    try:
        if splitting.ranked:
            plain = {token: vocab[token] for token in vocab.keys() - marked.keys()}
            made = bytes_of_ranked(plain, merges, where)
        else:
            made = bytes_of_products(vocab, merges, where)
    except ValueError as error:
        raise OtherKind(str(error)) from None
    if not made:
        raise OtherKind(f"{path} has no token for any single byte, so it can encode no text.")
    _check_marked(marked, vocab, made, path)
    special = _whole_tokens(vocab.keys() - made.keys() - marked.keys(), vocab, path)
    special |= {text: token.id for text, token in marked.items() if token.is_special}
    added = {text: token.id for text, token in marked.items() if not token.is_special}
    return Vocabulary({made[token]: vocab[token] for token in made}, special, added, splitting)


def _check_ids(vocab: dict[str, Any], path: Path) -> None:
    owner: dict[int, str] = {}
    for token, token_id in vocab.items():
        if not is_id(token_id):
            raise ValueError(
                f"{path}: the id of {token!r:.60} is {token_id!r:.60}, not an integer >= 0."
            )
        if owner.setdefault(token_id, token) != token:
            raise ValueError(
                f"{path}: {owner[token_id]!r:.60} and {token!r:.60} share the id {token_id}."
            )


def _check_marked(
    marked: dict[str, MarkedToken], vocab: dict[str, int], made: dict[str, bytes], path: Path
) -> None:
    owner = {token_id: token for token, token_id in vocab.items()}
    for text, token in marked.items():
        if owner.setdefault(token.id, text) != text or vocab.get(text, token.id) != token.id:
            raise ValueError(
                f"{path.parent}: the added token {text!r:.60} has the id {token.id}, which "
                f"{path.name} or another added token contradicts."
            )
        if made.get(text, text.encode("utf-8")) != text.encode("utf-8"):
            raise OtherKind(
                f"{path}: {text!r:.60} is an added token, but the vocabulary uses it for other "
                "bytes."
            )


def _whole_tokens(tokens: Iterable[str], vocab: dict[str, int], path: Path) -> dict[str, int]:
    """Text -> id of tokens that no merge makes, but that are written in the byte alphabet."""
    alphabet, whole = byte_alphabet(), {}
    for token in tokens:
        if not token or set(token) - alphabet.keys():
            raise OtherKind(f"{path}: the token {token!r:.60} is not in GPT-2's byte alphabet.")
        try:
            whole[b"".join(alphabet[char] for char in token).decode("utf-8")] = vocab[token]
        except UnicodeDecodeError:
            raise OtherKind(
                f"{path}: no merge makes the token {token!r:.60}, and it is no text."
            ) from None
    return whole


def _vocab_and_merges(
    folder: Path, whole: dict[str, Any]
) -> tuple[dict[str, Any], Path, Merges, str]:
    """Token -> id and the file it comes from; the merges and where they stand."""
    path, merges_path = folder / "vocab.json", folder / "merges.txt"
    if path.exists() and merges_path.exists():
        where = f"{merges_path} line"
        return read_object(path), path, _merges_by_line(merges_path, where), where
    path = folder / "tokenizer.json"
    if whole:
        where = f"{path}: model.merges"
        vocab = expect(dict, whole["model"].get("vocab"), f"{path}: model.vocab")
        listed = expect(list, whole["model"].get("merges"), where)
        return vocab, path, _merges_by_index(listed, where), where
    alone = [name for name in ("tokenizer.model", "tekken.json") if (folder / name).exists()]
    hint = f" (transformers makes one of {alone[0]})" if alone else ""
    raise FileNotFoundError(
        f"{folder} has no vocabulary to read text with: add vocab.json and merges.txt, or "
        f"tokenizer.json{hint}; token ids need none."
    )


def _merges_by_line(path: Path, where: str) -> Merges:
    """Line number -> parts, from `merges.txt` with or without its `#version` line."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows editors put a byte order mark
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error.reason} at byte {error.start}.") from None
    lines = dict(enumerate(text.split("\n"), start=1))
    if lines[1].startswith("#version"):
        del lines[1]
    return {n: _pair(line.split(), where, n) for n, line in lines.items() if line.strip()}


def _merges_by_index(listed: list[Any], where: str) -> Merges:
    """Index -> parts, from merges as strings ("a b", in older files) or as pairs (["a", "b"])."""
    return {
        n: _pair(merge.split(" ") if isinstance(merge, str) else merge, where, n)
        for n, merge in enumerate(listed)
    }


def _pair(parts: Any, where: str, number: int) -> tuple[str, str]:
    if isinstance(parts, list) and len(parts) == 2:
        left, right = parts
        if isinstance(left, str) and isinstance(right, str):
            return left, right
    raise ValueError(f"{where} {number}: {parts!r:.60} is not a merge of two tokens.")


def _refuse_other_models(whole: dict[str, Any], path: Path) -> None:
    model = expect(dict, whole.get("model"), f"{path}: model")
    _refuse_unless_equal(
        path,
        ("model.type", model.get("type") or "BPE", "BPE"),
        ("model.byte_fallback", model.get("byte_fallback") or False, False),
        ("model.dropout", model.get("dropout") or None, None),
        ("model.continuing_subword_prefix", model.get("continuing_subword_prefix") or None, None),
        ("model.end_of_word_suffix", model.get("end_of_word_suffix") or None, None),
    )
    if (normalizer := whole.get("normalizer")) not in (None, NFC):
        raise OtherKind(f"{path}: normalizer is {normalizer!r:.60}, but npgpt knows {NFC!r} alone.")


def _refuse_unless_equal(path: Path, *settings: tuple[str, Any, Any]) -> None:
    for name, found, wanted in settings:
        if found != wanted:
            raise OtherKind(
                f"{path}: {name} is {found!r:.60}, but npgpt reads text as GPT-2 does: {wanted!r}."
            )


def _splitting(whole: dict[str, Any], path: Path) -> Splitting:
    """The splitting that a tokenizer.json describes.

    Raises ValueError for a pattern that is not known. Where `pre_tokenizer` is null, Hugging Face
    merges across words and maps no bytes, which none of them does.
    """
    pre = expect(dict, whole.get("pre_tokenizer") or {}, f"{path}: pre_tokenizer")
    *before, last = _steps(pre, path)
    kinds = [step.get("type") for step in before]
    pattern, uses_regex = GPT2_SPLIT, True
    if kinds == ["Digits"] and before[0].get("individual_digits") is True:
        pattern = SMOLLM_SPLIT
    elif kinds == ["Split"] and (written := written_pattern(before[0])):
        pattern, uses_regex = written, False
    elif before:
        last = pre
    _refuse_unless_equal(
        path,
        ("pre_tokenizer.type", last.get("type"), "ByteLevel"),
        ("pre_tokenizer.add_prefix_space", last.get("add_prefix_space"), False),
        ("pre_tokenizer.use_regex", last.get("use_regex", True), uses_regex),
    )
    ranked = bool(whole["model"].get("ignore_merges"))
    return Splitting(pattern, composed=whole.get("normalizer") == NFC, ranked=ranked)


def _splitting_of_class(folder: Path, config: dict[str, Any]) -> Splitting:
    """The splitting of the class that tokenizer_config.json names, else of the model's own.

    Raises ValueError for a class that is not known.
    """
    is_qwen = read_object(folder / "config.json").get("model_type") in QWENS
    name = config.get("tokenizer_class") or ("Qwen2Tokenizer" if is_qwen else "GPT2Tokenizer")
    if name.removesuffix("Fast") not in CLASSES:
        raise ValueError(
            f"{folder / 'tokenizer_config.json'}: tokenizer_class is {name!r:.60}, but without a "
            f"tokenizer.json npgpt reads {', '.join(CLASSES)}; save_pretrained of transformers' "
            "tokenizer makes that file."
        )
    return CLASSES[name.removesuffix("Fast")]


def _steps(pre: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    listed = pre.get("pretokenizers")
    if pre.get("type") != "Sequence" or not isinstance(listed, list) or not listed:
        return [pre]
    where = f"{path}: pre_tokenizer.pretokenizers"
    return [expect(dict, step, f"{where}[{n}]") for n, step in enumerate(listed)]


def _frames_texts(folder: Path, whole: dict[str, Any], config: dict[str, Any]) -> bool:
    """Whether Hugging Face puts special tokens around every text."""
    where = f"{folder / 'tokenizer.json'}: post_processor"
    post = expect(dict, whole.get("post_processor") or {}, where)
    steps = expect(list, post.get("processors") or [post], where)
    framing = any(
        step.get("type") in ("BertProcessing", "RobertaProcessing") or step.get("special_tokens")
        for step in (expect(dict, step, where) for step in steps)
    )
    asked = not whole and (config.get("add_bos_token") or config.get("add_eos_token"))
    return bool(framing or asked)


def _warn_of_framing(place: Path, who: str) -> None:
    warnings.warn(
        f"{place}: {who} puts special tokens around every text for this model, npgpt does not: "
        "write them into the text and pass allowed_special='all', or add their ids.",
        UserWarning,
        stacklevel=3,
    )


def _marked_tokens(
    folder: Path, whole: dict[str, Any], config: dict[str, Any], *, composed: bool
) -> dict[str, MarkedToken]:
    """Text -> id and kind of the tokens that the files mark as added to the vocabulary.

    `whole` and `config` are the contents of `tokenizer.json` and `tokenizer_config.json`. A token
    is special where its entry says so, or where a file names it `eos_token` or the like.
    """
    special = special_texts(folder, config)
    marked: dict[str, MarkedToken] = {}
    for where, token_id, entry in listed_tokens(folder, whole, config):
        text = entry["content"]
        for flag in ("lstrip", "rstrip", "single_word"):
            if entry.get(flag):
                raise OtherKind(f"{where}: {text!r:.60} is marked {flag}, which npgpt does not do.")
        token = MarkedToken(token_id, bool(entry.get("special")) or text in special)
        if composed and text not in marked and entry.get("normalized", not token.is_special):
            raise OtherKind(
                f"{where}: {text!r:.60} is looked for after NFC (normalized), which needs a "
                "tokenizer.json and the package tokenizers."
            )
        if marked.setdefault(text, token).id != token_id:
            raise ValueError(
                f"{where} gives {text!r:.60} the id {token_id}, but another file has "
                f"{marked[text].id}."
            )
    return marked
