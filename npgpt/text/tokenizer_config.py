"""The files beside a vocabulary: tokenizer_config.json and its like, every key of it accounted for.

Settings are obeyed, known to change no id, or named in a warning; tokens that were added to a
vocabulary after training are listed in three places.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from npgpt.files.checkpoint import shortened
from npgpt.files.io import parse_json
from npgpt.files.kinds import check_kinds, is_id

T = TypeVar("T", dict[str, Any], list[Any])

SURROGATE = re.compile("[\ud800-\udfff]")  # half a character
ROLES = tuple(f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
KINDS: dict[str, Any] = {
    **dict.fromkeys(ROLES, str | Mapping[str, Any] | None),
    "additional_special_tokens": list[Any] | Mapping[str, Any] | None,
    "extra_special_tokens": list[Any] | Mapping[str, Any] | None,
    "add_bos_token": bool | None,
    "add_eos_token": bool | None,
    "add_prefix_space": bool | None,
    "do_lower_case": bool | None,
    "tokenize_chinese_chars": bool | None,
    "strip_accents": bool | None,
    "tokenizer_class": str | None,
}
# Read for every vocabulary: which tokens are special; how a text is cut, if no other file says so.
ALWAYS = (
    *(*ROLES, "additional_special_tokens", "extra_special_tokens", "added_tokens_decoder"),
    "tokenizer_class",
)
# For chats, pairs, cutting and padding, which npgpt does not do; names; how a text is written.
NO_CHANGE = (
    *("auto_map", "backend", "chat_template", "clean_up_tokenization_spaces", "device_map"),
    *("errors", "is_local", "max_length", "max_len", "model_input_names", "model_max_length"),
    *("name_or_path", "pad_to_multiple_of", "pad_token_type_id", "padding", "padding_side"),
    *(
        "processor_class",
        "return_token_type_ids",
        "sp_model_kwargs",
        "spaces_between_special_tokens",
    ),
    *("special_tokens_map_file", "stride", "tokenizer_file", "truncation"),
    *("truncation_side", "truncation_strategy", "use_default_system_prompt", "use_fast"),
    *("vocab_file", "merges_file", "local_files_only", "model_type", "response_schema"),
    *(f"{role}_id" for role in ROLES),
    *("transformers_version", "add_special_tokens", "do_basic_tokenize", "legacy", "trim_offsets"),
)

# Of a .gguf file, after "tokenizer.ggml.".
GGUF_OBEYED = (
    *("model", "pre", "tokens", "token_type", "scores", "merges", "add_bos_token", "add_eos_token"),
    *("add_space_prefix", "bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id"),
    *("unknown_token_id",),
)
GGUF_NO_CHANGE = (  # llama.cpp obeys the last two for other kinds of vocabulary only
    *("padding_token_id", "cls_token_id", "mask_token_id", "seperator_token_id", "add_sep_token"),
    *("prefix_token_id", "suffix_token_id", "middle_token_id", "fim_pre_token_id"),
    *("fim_suf_token_id", "fim_mid_token_id", "fim_pad_token_id", "fim_rep_token_id"),
    *("fim_sep_token_id", "token_type_count", "remove_extra_whitespaces", "precompiled_charsmap"),
)


def warn_of_gguf_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Warn of settings of a vocabulary in a `.gguf` file that npgpt does not know."""
    prefix, known = "tokenizer.ggml.", {*GGUF_OBEYED, *GGUF_NO_CHANGE}
    own = [name for name in settings if name.startswith(prefix)]
    if unknown := [name for name in own if name.removeprefix(prefix) not in known]:
        text = f"{path}: npgpt does nothing about {shortened(unknown)}, which may change ids."
        warnings.warn(text, UserWarning, stacklevel=3)


def read_tokenizer_config(folder: Path) -> dict[str, Any]:
    """The settings of tokenizer_config.json, {} without it; ValueError for one of a wrong kind."""
    path = folder / "tokenizer_config.json"
    settings = read_object(path)
    check_kinds(settings, KINDS, str(path))
    return settings


def warn_of_settings(folder: Path, settings: Mapping[str, Any], *obeyed: str) -> None:
    """Warn of settings that are neither `obeyed` nor known to change no id, unless they are off."""
    known = {*obeyed, *ALWAYS, *NO_CHANGE}
    if unknown := [name for name, value in settings.items() if value and name not in known]:
        warnings.warn(
            f"{folder / 'tokenizer_config.json'}: npgpt does nothing about {shortened(unknown)}, "
            "which may change ids.",
            UserWarning,
            stacklevel=3,
        )


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, {} where there is no file; ValueError for anything else."""
    if not path.exists():
        return {}
    return expect(dict, parse_json(path.read_bytes(), str(path)), str(path))


def expect(kind: type[T], value: object, where: str) -> T:
    """`value`, if it is a `dict` or `list` as it should be; ValueError naming `where` if not."""
    if not isinstance(value, kind):
        name = "object" if kind is dict else "array"
        raise ValueError(f"{where} has to be a JSON {name}, but is {value!r:.60}.")
    return value


def role_tokens(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """Role ("eos_token") -> text, as tokenizer_config.json or special_tokens_map.json say.

    Raises ValueError for a special_tokens_map.json of wrong kinds, and what UTF-8 cannot write.
    """
    path = folder / "special_tokens_map.json"
    mapped = read_object(path)
    check_kinds(mapped, KINDS, str(path))
    named = {role: _text(settings.get(role) or mapped.get(role)) for role in ROLES}
    found = {role: text for role, text in named.items() if text is not None}
    for role, text in found.items():
        if SURROGATE.search(text):
            raise ValueError(f"{folder}: {role} is {text!r:.60}, which is no text.")
    return found


def special_texts(folder: Path, settings: Mapping[str, Any]) -> set[str | None]:
    """The tokens that a file names `bos_token`, `additional_special_tokens` and the like."""
    texts: set[str | None] = set()
    for properties in (settings, read_object(folder / "special_tokens_map.json")):
        for key, value in properties.items():
            if key.endswith(("_token", "_tokens")):
                texts.update(map(_text, value if isinstance(value, list) else [value]))
    return texts - {None}


def _text(token: Any) -> str | None:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def listed_tokens(
    folder: Path, whole: Mapping[str, Any], settings: Mapping[str, Any]
) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Each place that marks a token as added: where it stands, its id, its entry with `content`.

    `whole` and `settings` are the contents of tokenizer.json and tokenizer_config.json. Raises
    ValueError for an id that is none, or a token that is no text.
    """
    for where, token_id, entry in _entries(folder, whole, settings):
        text = entry.get("content")
        if not is_id(token_id):
            raise ValueError(
                f"{where} gives {text!r:.60} the id {token_id!r:.60}, not an integer >= 0."
            )
        if not isinstance(text, str) or not text or SURROGATE.search(text):
            raise ValueError(f"{where} gives the id {token_id} to {text!r:.60}, which is no text.")
        yield where, token_id, entry


def _entries(
    folder: Path, whole: Mapping[str, Any], settings: Mapping[str, Any]
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    where = f"{folder / 'tokenizer.json'}: added_tokens"
    for entry in expect(list, whole.get("added_tokens") or [], where):
        yield where, expect(dict, entry, where).get("id"), entry
    where = f"{folder / 'tokenizer_config.json'}: added_tokens_decoder"
    for key, entry in expect(dict, settings.get("added_tokens_decoder") or {}, where).items():
        yield (
            where,
            int(key) if key.isdecimal() and len(key) < 20 else key,
            expect(dict, entry, where),
        )
    for text, token_id in read_object(folder / "added_tokens.json").items():
        yield str(folder / "added_tokens.json"), token_id, {"content": text}


def add_listed_tokens(tokenizer: Any, folder: Path, settings: Mapping[str, Any]) -> None:
    """Add to a tokenizer of the package tokenizers what other files mark as added.

    A token that is new there gets the next free id; ValueError if its file says another.
    """
    from tokenizers import AddedToken

    special = special_texts(folder, settings)
    have = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    for where, token_id, entry in sorted(listed_tokens(folder, {}, settings), key=lambda e: e[1]):
        text = entry["content"]
        if text not in have:
            is_special = bool(entry.get("special")) or text in special
            flags = {flag: bool(entry.get(flag)) for flag in ("single_word", "lstrip", "rstrip")}
            normalized = bool(entry.get("normalized", not is_special))
            add = tokenizer.add_special_tokens if is_special else tokenizer.add_tokens
            add([AddedToken(text, normalized=normalized, **flags)])
        if (found := tokenizer.token_to_id(text)) != token_id:
            raise ValueError(
                f"{where} gives {text!r:.60} the id {token_id}, but elsewhere it has {found}."
            )
