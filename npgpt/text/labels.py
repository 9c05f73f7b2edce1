"""A token as a short text that shows everything in it: spaces, line ends, halves of characters.

" cat" -> ␣cat      "\\n" -> ⏎      the first two bytes of 地 -> <E5 9C>      no token -> #50300
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from itertools import groupby

Label = Callable[[int], str]

VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥"}


def labeller(bytes_of: Mapping[int, bytes]) -> Label:
    """Token id -> label, for a vocabulary (id -> bytes); `#id` where it has no such token."""

    def label(token: int) -> str:
        return visible(bytes_of[token]) if token in bytes_of else f"#{token}"

    return label


def visible(token: bytes) -> str:
    """Bytes as text; incomplete and unprintable characters as <hexadecimal bytes>."""
    # surrogateescape turns each byte that is not UTF-8 into one lone surrogate, and back.
    text = token.decode("utf-8", errors="surrogateescape")
    shown = "".join(
        "".join(VISIBLE.get(char, char) for char in run) if is_seen else _as_bytes("".join(run))
        for is_seen, run in groupby(text, key=_is_seen)
    )
    starts_on_nothing = shown and unicodedata.category(shown[0]) in ("Mn", "Mc", "Me")
    return "◌" + shown if starts_on_nothing else shown or "<>"


def _is_seen(char: str) -> bool:
    return char in VISIBLE or char.isprintable()


def _as_bytes(text: str) -> str:
    return f"<{text.encode('utf-8', errors='surrogateescape').hex(' ').upper()}>"
