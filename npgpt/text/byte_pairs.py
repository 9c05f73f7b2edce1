"""The merges of a byte-level BPE vocabulary: the bytes of the tokens they make, and checks.

The checks let tiktoken, which merges the texts, stand in for GPT-2's own algorithm. GPT-2 joins the
*pair* of tokens whose merge was learned first; tiktoken joins the neighbours whose joint *bytes*
have the lowest id. The two agree when ids rise in the order of merges and every merge can happen.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np


def byte_alphabet() -> dict[str, bytes]:
    """The 256 characters that stand for bytes in GPT-2's files: character -> byte.

    A visible Latin-1 character stands for its own code. The 68 other bytes (controls, space,
    no-break space, soft hyphen) are written as U+0100, U+0101, …: a space is Ġ, a newline Ċ.
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    stand_in = iter(range(0x100, 0x144))
    return {chr(b if b in visible else next(stand_in)): bytes([b]) for b in range(256)}


def bytes_of_products(
    vocab: Mapping[str, int], merges: Mapping[int, tuple[str, str]], where: str
) -> dict[str, bytes]:
    """Token -> bytes, for the single bytes in `vocab` (token -> id), then each merge's product.

    `merges` maps a number (line or index, which an error names after `where`) to the two parts.
    Single bytes may have any ids. Raises ValueError for a merge whose part or product is no token,
    or that comes before its parts, repeats a product, makes an id out of order, or never happens.
    """
    singles = {char: byte for char, byte in byte_alphabet().items() if char in vocab}
    index = {char: i for i, char in enumerate(singles)}  # token -> how many are made before it
    spelled, parts, last_id = list(singles.values()), [], -1
    for number, (left, right) in merges.items():
        product = left + right
        try:
            a, b, token_id = index[left], index[right], vocab[product]
        except KeyError:
            token_id = -1
        if token_id <= last_id:
            fault = _fault(left, right, vocab, index)
            raise ValueError(f"{where} {number}: the merge '{left:.40} {right:.40}' {fault}.")
        index[product] = len(spelled)
        spelled.append(spelled[a] + spelled[b])
        parts.append((a, b))
        last_id = token_id
    dead = never_applied(np.array(parts, dtype=np.int64).reshape(-1, 2), len(singles))
    if dead.any():
        number, (left, right) = list(merges.items())[dead.argmax()]
        raise ValueError(
            f"{where} {number}: the merge '{left:.40} {right:.40}' can never be applied, because "
            "earlier merges always join across its border; take it out."
        )
    return dict(zip(index, spelled, strict=True))


def bytes_of_ranked(
    vocab: Mapping[str, int], merges: Mapping[int, tuple[str, str]], where: str
) -> dict[str, bytes]:
    """Token -> bytes where the merges are tiktoken's own ranks written out, as for Llama 3.

    There a piece that is a token is taken whole ("ignore_merges"), and a token has a merge for each
    way to cut it into two others. Raises ValueError if ids of products fall or a way is missing.
    """
    alphabet, pairs, last_id = byte_alphabet(), set(), -1
    for number, (left, right) in merges.items():
        token_id = vocab.get(left + right, -1)
        if not {left, right, left + right} <= vocab.keys() or token_id < last_id:
            fault = _fault(left, right, vocab, vocab.keys() - {left + right})
            raise ValueError(f"{where} {number}: the merge '{left:.40} {right:.40}' {fault}.")
        pairs.add((left, right))
        last_id = token_id
    made = {t: b"".join(alphabet[c] for c in t) for t in vocab if t and alphabet.keys() >= set(t)}
    for token in made:
        for cut in range(1, len(token)):
            pair = token[:cut], token[cut:]
            if pair not in pairs and pair[0] in made and pair[1] in made:
                raise ValueError(
                    f"{where}: no merge '{pair[0]} {pair[1]}', though all three are tokens; with "
                    "ignore_merges a token needs a merge for each way to cut it."
                )
    return made


def _fault(left: str, right: str, vocab: Mapping[str, int], index: Collection[str]) -> str:
    for token in (left, right, left + right):
        if token not in vocab:
            return f"needs the token {token!r:.60}, which the vocabulary lacks"
    for token in (left, right):
        if token not in index:
            return f"joins {token!r:.60}, which is neither a byte nor made by an earlier merge"
    if left + right in index:
        return "makes a token that an earlier merge makes already"
    return (
        f"makes id {vocab[left + right]}, which is below the id that the merge before it makes; "
        "ids have to rise in the order of the merges, because they serve as priorities"
    )


def never_applied(parts: np.ndarray, singles: int) -> np.ndarray:
    """Parts of each merge, int [M, 2] -> bool [M], True where a merge can happen in no text.

    Tokens are numbered as they are made: the single bytes 0 … `singles` - 1, then merge m makes
    `singles` + m. To judge a merge, undo the merges that made its two parts, along the border
    between them, the latest first. If at some step the two tokens that meet at the border are the
    parts of an earlier merge than the one just undone, BPE applies that earlier merge and joins
    across the border. If they are the parts of the very same merge, BPE applies the left one first.
    """
    # [singles + M, 2], the two parts of every token; a single byte is its own on both sides.
    split = np.concatenate([np.repeat(np.arange(singles)[:, None], 2, axis=1), parts])
    pairs = parts[:, 0] * len(split) + parts[:, 1]
    order = np.argsort(pairs)
    merge, left, right = np.arange(len(parts)), parts[:, 0], parts[:, 1]
    dead = np.zeros(len(parts), dtype=bool)
    while True:
        undone = np.maximum(left, right)
        more = undone >= singles  # where not, two bytes meet and nothing is left to undo
        merge, left, right, undone = merge[more], left[more], right[more], undone[more]
        if merge.size == 0:
            return dead
        left_is_later = left > right
        left, right = (
            np.where(left_is_later, split[left, 1], left),
            np.where(left_is_later, right, split[right, 0]),
        )
        meeting = left * len(split) + right
        found = order[np.searchsorted(pairs, meeting, sorter=order) % len(order)]
        across = np.where(pairs[found] == meeting, singles + found, len(split))
        dead[merge] |= np.where(left_is_later, across < undone, across <= undone)


def joined_bytes(tokens: Any, bytes_of: Mapping[int, bytes], name: str) -> bytes:
    """Ids -> bytes; ValueError for an id without a token in `name`, and for what is no id."""
    try:
        if getattr(tokens, "dtype", None) == np.dtype(bool):  # 0 and 1 for NumPy 2.0
            raise TypeError
        return b"".join([bytes_of[operator.index(token)] for token in tokens])
    except KeyError as error:
        raise ValueError(f"id {error.args[0]} has no token in {name}.") from None
    except TypeError:
        raise ValueError(f"tokens must be a list of ids, but is {tokens!r:.60}.") from None
