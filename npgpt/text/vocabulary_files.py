"""The content of vocabulary files: JSON objects, merges, tokens marked as added or special.

Every error names the file and the place in it. Leaves out whether the files fit together: that is
for `vocabulary.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from npgpt.files.io import parse_json

T = TypeVar("T", dict[str, Any], list[Any])

Merges = dict[int, tuple[str, str]]  # line number or index -> the two parts, in order


class MarkedToken(NamedTuple):
    """A token that a file marks as added; special ones are found in a text only on request."""

    id: int
    is_special: bool


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


def is_id(value: object) -> bool:
    """Whether a JSON value can be a token id, which tiktoken keeps in 32 bits."""
    return type(value) is int and 0 <= value < 2**31


def merges_by_line(path: Path, where: str) -> Merges:
    """Line number -> parts, from `merges.txt` with or without its `#version` line."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error.reason} at byte {error.start}.") from None
    lines = dict(enumerate(text.split("\n"), start=1))
    if lines[1].startswith("#version"):
        del lines[1]
    return {n: _pair(line.split(), where, n) for n, line in lines.items() if line.strip()}


def merges_by_index(listed: list[Any], where: str) -> Merges:
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


def marked_tokens(
    folder: Path, whole: dict[str, Any], config: dict[str, Any]
) -> dict[str, MarkedToken]:
    """Text -> id and kind of the tokens that the files mark as added to the vocabulary.

    `whole` and `config` are the contents of `tokenizer.json` and `tokenizer_config.json`. A token
    is special where its entry says so, or where a file names it `eos_token` or the like.
    """
    special = {*_named(config), *_named(read_object(folder / "special_tokens_map.json"))}
    marked: dict[str, MarkedToken] = {}
    for where, token_id, entry in _entries(folder, whole, config):
        text = entry.get("content")
        if not is_id(token_id):
            raise ValueError(
                f"{where} gives {text!r:.60} the id {token_id!r}, not an integer >= 0."
            )
        if not isinstance(text, str) or not text or re.search("[\ud800-\udfff]", text):
            raise ValueError(f"{where} gives the id {token_id} to {text!r:.60}, which is no text.")
        for flag in ("lstrip", "rstrip", "single_word"):
            if entry.get(flag):
                raise ValueError(f"{where}: {text!r} is marked {flag}, which npgpt does not do.")
        token = MarkedToken(token_id, bool(entry.get("special")) or text in special)
        if marked.setdefault(text, token).id != token_id:
            raise ValueError(
                f"{where} gives {text!r} the id {token_id}, but another file has {marked[text].id}."
            )
    return marked


def _entries(
    folder: Path, whole: dict[str, Any], config: dict[str, Any]
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Each place that marks a token: where it stands, the id, and its properties."""
    where = f"{folder / 'tokenizer.json'}: added_tokens"
    for entry in expect(list, whole.get("added_tokens") or [], where):
        yield where, expect(dict, entry, where).get("id"), entry
    where = f"{folder / 'tokenizer_config.json'}: added_tokens_decoder"
    for key, entry in expect(dict, config.get("added_tokens_decoder") or {}, where).items():
        yield where, int(key) if key.isdecimal() else key, expect(dict, entry, where)
    for text, token_id in read_object(folder / "added_tokens.json").items():
        yield str(folder / "added_tokens.json"), token_id, {"content": text}


def _named(properties: dict[str, Any]) -> Iterator[str]:
    """The tokens under `bos_token`, `eos_token`, `additional_special_tokens` and the like."""
    for key, value in properties.items():
        if key.endswith(("_token", "_tokens")):
            for token in value if isinstance(value, list) else [value]:
                text = token.get("content") if isinstance(token, dict) else token
                if isinstance(text, str):
                    yield text
