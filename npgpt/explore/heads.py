"""The attention of a page: every head's tables there and back, its job, and what it moves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npgpt.explore.both_ways import BothWays
from npgpt.models.gpt_neo.model import GPTNeo
from npgpt.models.llama.model import Llama
from npgpt.trace.edits import Effect

TABLES = ("probs", "scores")
VECTORS = ("q", "k", "v")
MUCH, MOST, EVEN = 0.35, 0.5, 0.9  # of a head's weight; of the entropy that it could have
TABLE_BYTES = 3_000_000  # of all tables in a page, unless it is a full one
VECTOR_BYTES = 270_000  # of queries, keys and values


class Star(NamedTuple):
    """The head that looks hardest at one token, and that token."""

    layer: int
    head: int
    key: int
    weight: float


def star(both: BothWays, position: int) -> Star | None:
    """The largest weight on one earlier token, but not the first nor the one just before.

    Heads that look for nothing rest on the first (article 7.6), and many always look one back.
    None where there is no such token.
    """
    if position < 3:
        return None
    rows = [both.seen.attention_weights(n)[:, position] for n in range(both.view.n_layer)]
    weights = np.stack(rows)[..., 1 : position - 1]  # [L, H, keys]
    layer, head, key = np.unravel_index(np.argmax(weights), weights.shape)
    return Star(int(layer), int(head), int(key) + 1, float(weights[layer, head, key]))


def stars(both: BothWays) -> list[Star | None]:
    """One for each position."""
    return [star(both, position) for position in range(len(both.seen.ids))]


def job(probs: np.ndarray, ids: list[int]) -> dict[str, Any]:
    """What a head does most, from its weight table [T, T]: a name and the weight behind it.

    "back" looks a fixed number of tokens back, "first" at the first token, "same" at itself or an
    earlier token with the same id; "spread" has nearly the entropy of equal weights. The first
    two rows say nothing, as one back is the first there.
    """
    T = len(ids)
    rows = np.arange(min(2, T - 1), T)
    keys = {n: np.arange(1, T - n) for n in range(1, T - 1)}  # the first has a job of its own
    back = {n: float(probs[k + n, k].sum()) / len(rows) for n, k in keys.items()}
    offset = max(back, key=lambda n: back[n], default=1)
    tokens = np.array(ids)
    same = float(_mean((probs * (tokens[:, None] == tokens)).sum(axis=1)[rows]))
    first = float(_mean(probs[rows, 0]))
    found = {"back": back.get(offset, 0.0), "first": first, "same": same}
    name = max(found, key=lambda each: found[each])
    if found[name] <= MUCH:
        entropy = -(probs * np.log(np.maximum(probs, 1e-30))).sum(axis=1)[rows]
        even = float(_mean(entropy / np.log(rows + 1)))
        return {"job": "spread" if even > EVEN else "mixed", "share": found[name]}
    said = {"job": name, "share": found[name], "mostly": found[name] <= MOST}
    return {**said, "offset": offset} if name == "back" else said


def _mean(values: np.ndarray) -> Any:
    return values.mean() if values.size else 0.0


def heads(both: BothWays, effects: list[Effect]) -> list[dict[str, Any]]:
    """What there is to say about every head, block by block."""
    found = []
    for n in range(both.view.n_layer):
        probs = both.seen.attention_weights(n)
        pull = np.linalg.norm(both.back[both.view.weights_station(n)], axis=(1, 2))
        for head in range(both.view.n_head):
            effect = effects[n * both.view.n_head + head]
            shared = both.view.heads_that_share(head)
            found.append(
                {
                    "layer": n,
                    "head": head,
                    **job(probs[head], both.seen.ids),
                    "change": effect.change,
                    "estimate": effect.estimate,
                    "pull": float(pull[head]),
                    "hardest": hardest_weight(both, n, head),
                    "shares": shared if len(shared) > 1 else None,
                }
            )
    return found


def hardest_weight(both: BothWays, n: int, head: int) -> dict[str, Any]:
    """The weight of W_Q, W_K, W_V or W_O that belongs to a head and has the largest gradient."""
    best: dict[str, Any] = {"value": 0.0}
    for name, rows, columns in _weights_of(both, n, head):
        part = both.grads[name][rows, columns]
        i, j = np.unravel_index(np.argmax(np.abs(part)), part.shape)
        if abs(part[i, j]) > abs(best["value"]) or "name" not in best:
            index = [int(i) + (rows.start or 0), int(j) + (columns.start or 0)]
            best = {"name": name, "index": index, "value": float(part[i, j])}
    return best


def _weights_of(both: BothWays, n: int, head: int) -> list[tuple[str, slice, slice]]:
    """Matrix, rows and columns of a head's four projections."""
    d_h = both.in_heads(f"{both.attn(n)}.context").shape[-1]
    all_rows, own = slice(None), slice(head * d_h, (head + 1) * d_h)
    out = (f"{both.W_O(n)}.weight", own, slice(None))
    if isinstance(both.model, Llama | GPTNeo):
        group = head // both.view.n_group
        shared = slice(group * d_h, (group + 1) * d_h)
        attn = both.W_O(n).rpartition(".")[0]
        parts = zip(("q_proj", "k_proj", "v_proj"), (own, shared, shared), strict=True)
        return [*((f"{attn}.{name}.weight", all_rows, part) for name, part in parts), out]
    d = both.view.n_head * d_h
    name = f"{both.attn(n)}.c_attn.weight"
    return [
        *((name, all_rows, slice(own.start + part * d, own.stop + part * d)) for part in range(3)),
        out,
    ]


def moved(both: BothWays) -> dict[str, np.ndarray]:
    """What a value is long behind W_O, and what a head adds in all at each position: [L H, T].

    Looking at token j with weight P moves P times the first of j (article 7.3 step 6).
    """
    values, added = [], []
    for n in range(both.view.n_layer):
        W = both.model.params[f"{both.W_O(n)}.weight"].reshape(both.view.n_head, -1, _width(both))
        v = _of_all_heads(both, both.seen.stations[f"{both.attn(n)}.v"])  # [H, T, d_h]
        values.append(np.linalg.norm(v @ W, axis=-1))
        context = both.in_heads(f"{both.attn(n)}.context").swapaxes(0, 1)
        added.append(np.linalg.norm(context @ W, axis=-1))
    return {"values": np.concatenate(values), "added": np.concatenate(added)}


def _width(both: BothWays) -> int:
    return both.seen.stations["embed"].shape[-1]


def _of_all_heads(both: BothWays, array: np.ndarray) -> np.ndarray:
    """Keys or values [H or H_kv, T, d_h] as [H, T, d_h]."""
    return np.repeat(array, both.view.n_head // len(array), axis=0)


def ranked(both: BothWays, all_heads: list[dict[str, Any]], first: Star | None) -> list[int]:
    """Head numbers n H + head, those first that a reader would ask for.

    The star of the followed token, those of the others, then by what the loss does without.
    """
    found = [s for s in (first, *stars(both)) if s is not None]
    named = [s.layer * both.view.n_head + s.head for s in found]
    by_change = np.argsort([-abs(each["change"]) for each in all_heads], kind="stable")
    return list(dict.fromkeys([*named, *(int(i) for i in by_change)]))


def tables(both: BothWays, order: list[int], full: bool) -> dict[str, Any]:
    """Weights, scaled scores and their gradients of the heads that are in the page.

    Lower triangles, row by row: [heads, T (T + 1) / 2]. Of a long text not all heads have room.
    """
    lower = np.tril_indices(len(both.seen.ids))
    size = len(lower[0]) * 4 * 2 * len(TABLES)
    kept = sorted(order if full else order[: max(4, TABLE_BYTES // size)])
    found: dict[str, Any] = {"kept": kept}
    for name in TABLES:
        for sign, arrays in (("", both.seen.stations), ("d", both.back)):
            of = [arrays[f"{both.attn(n)}.{name}"] for n in range(both.view.n_layer)]
            found[sign + name] = np.stack(
                [of[i // both.view.n_head][i % both.view.n_head][lower] for i in kept]
            )
    return found


def vectors(both: BothWays, order: list[int], full: bool) -> dict[str, Any]:
    """Queries, keys, values and their gradients [heads, T, d_h] of as many heads as have room.

    The products behind a score need all digits of q and k; the others are bars in a picture.
    """
    T, _, d_h = both.in_heads(f"{both.attn(0)}.context").shape
    size = T * d_h * (2 * 4 + 4 * 2)
    kept = sorted(order if full else order[: max(1, VECTOR_BYTES // size)])
    found: dict[str, Any] = {"kept": kept}
    for name in VECTORS:
        for sign, arrays in (("", both.seen.stations), ("d", both.back)):
            rows = []
            for i in kept:
                n, head = divmod(i, both.view.n_head)
                array = arrays[f"{both.attn(n)}.{name}"]
                rows.append(array[head * len(array) // both.view.n_head])
            exact = np.float32 if sign + name in ("q", "k") else np.float16
            found[sign + name] = _packed(np.stack(rows), exact)
    return found


def _packed(array: np.ndarray, dtype: type[np.floating[Any]]) -> Any:
    """As it is, or in float16 with the scale that its largest number needs."""
    if dtype is np.float32:
        return array
    scale = float(np.abs(array).max()) or 1.0
    return {"scale": scale, "array": (array / scale).astype(dtype)}
