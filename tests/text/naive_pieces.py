"""SentencePiece's BPE as llama.cpp does it: join the two neighbours of the best score, leftmost
first, until none can be joined. Slow."""

from __future__ import annotations

from collections.abc import Mapping


def encode(text: str, scores: Mapping[str, float]) -> list[str]:
    """The pieces of a text, spaces as ▁, one put in front; bytes where a character has no piece."""
    pieces = list(("▁" + text.replace(" ", "▁")) if text else "")
    while True:
        best, at = None, -1
        for n in range(len(pieces) - 1):
            score = scores.get(pieces[n] + pieces[n + 1])
            if score is not None and (best is None or score > best):
                best, at = score, n
        if best is None:
            break
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    found: list[str] = []
    for piece in pieces:
        known = piece in scores
        found += [piece] if known else [f"<0x{byte:02X}>" for byte in piece.encode("utf-8")]
    return found
