"""The stream of a page: what each part adds, what it says on the way, and for whom it speaks."""

from __future__ import annotations

from typing import Any

import numpy as np

from npgpt.explore.both_ways import BothWays
from npgpt.ops.softmax import softmax_forward

GUESSES = 3  # tokens that the stream would say at a station
ANSWERS = 8  # likeliest next tokens at the end
NEURONS = 24  # of a position
PUSHED = 5  # tokens that a neuron raises, and lowers


def rows_of(both: BothWays) -> list[str]:
    """The stations that add to the stream, in order: embed, then two a block."""
    pairs = ((both.attn(n), both.mlp(n)) for n in range(both.view.n_layer))
    return ["embed", *(station for pair in pairs for station in pair)]


def largest(rows: np.ndarray, top: int) -> np.ndarray:
    """Where the `top` largest numbers of each row are, in order; of equal ones the first first.

    As a stable sort says, without sorting a whole vocabulary.
    """
    found = []
    for row in rows:
        least = np.partition(row, -top)[-top] if top < len(row) else row.min()
        candidates = np.flatnonzero(row >= least)
        found.append(candidates[np.argsort(-row[candidates], kind="stable")][:top])
    return np.stack(found)


def stream(both: BothWays, targets: np.ndarray) -> dict[str, Any]:
    """At each row and position [R, T]: sizes, the gradient along what is added, and the lens.

    The lens is that of `npgpt.trace.lens`, at all positions and behind each attention, too.
    `targets` [T] are the tokens whose rank and probability are asked for.
    """
    stations, x = both.seen.stations, np.zeros_like(both.seen.stations["embed"])
    found: dict[str, list[np.ndarray]] = {
        name: [] for name in ("added", "size", "slope", "ids", "p", "rank", "p_target")
    }
    at = np.arange(len(targets))
    for station in rows_of(both):
        x = x + stations[station]
        probs, _ = softmax_forward(both.seen.logits_of(both.view.last_norm(x)), axis=-1)
        likeliest = largest(probs, GUESSES)
        p_target = probs[at, targets]
        found["added"].append(np.linalg.norm(stations[station], axis=-1))
        found["size"].append(np.linalg.norm(x, axis=-1))
        found["slope"].append((stations[station] * both.back[station]).sum(axis=-1))
        found["ids"].append(likeliest)
        found["p"].append(np.take_along_axis(probs, likeliest, axis=-1))
        found["rank"].append(1 + (probs > p_target[:, None]).sum(axis=-1))
        found["p_target"].append(p_target)
    return {name: np.stack(rows) for name, rows in found.items()}


def answers(both: BothWays, targets: np.ndarray, also: dict[int, list[int]]) -> dict[str, Any]:
    """At each position the likeliest next tokens with their probabilities and logits [T, K].

    The token that follows and those asked for (`also`, position -> ids) are among them.
    """
    logits = both.seen.stations["logits"]
    probs, _ = softmax_forward(logits, axis=-1)
    K = min(ANSWERS, logits.shape[-1])
    rows = []
    for t, (p, likeliest) in enumerate(zip(probs, largest(probs, K).tolist(), strict=True)):
        wanted = list(dict.fromkeys([int(targets[t]), *also.get(t, [])]))
        kept = [*wanted, *(i for i in likeliest if i not in wanted)][:K]
        rows.append(sorted(kept, key=lambda i: -p[i]))
    ids = np.array(rows)
    return {
        "ids": ids,
        "p": np.take_along_axis(probs, ids, axis=-1),
        "logits": np.take_along_axis(logits, ids, axis=-1),
    }


def shares(both: BothWays, ids: np.ndarray) -> dict[str, Any]:
    """What each part adds to the logits of the answers [T, P, K]; the parts sum to the logits.

    Parts: embed; the heads and the network of each block; the biases of W_O and the last norm.
    Exact with the last norm's scale as it was in the pass. `slope` [T, P]: the part along the
    gradient at the end of the stream. It sums to 0 but for the norm's ε: a longer stream gives the
    same logits.
    """
    model, view = both.model, both.view
    T, d = both.seen.stations["embed"].shape
    parts, biases = [both.seen.stations["embed"][:, None]], np.zeros((T, d))
    for n in range(view.n_layer):
        W = model.params[f"{both.W_O(n)}.weight"].reshape(view.n_head, -1, d)
        parts.append(np.einsum("thi,hid->thd", both.in_heads(f"{both.attn(n)}.context"), W))
        parts.append(both.seen.stations[both.mlp(n)][:, None])
        biases = biases + model.params.get(f"{both.W_O(n)}.bias", 0.0)
    every = np.concatenate([*parts, biases[:, None]], axis=1)  # [T, P, d]
    _, table = both.seen.saved.lm_head
    logits = np.empty((T, every.shape[1], ids.shape[1]))
    for t in range(T):
        normed = view.norm_with_fixed_scale(both.seen.saved, t, every[t])
        normed[-1] = normed[-1] + model.params.get(f"{view.norm}.bias", 0.0)
        logits[t] = normed @ table[ids[t]].T
    end = both.back[view.block_station(view.n_layer - 1)]
    return {"logits": logits, "slope": np.einsum("tpd,td->tp", every, end)}


def neurons(both: BothWays) -> dict[str, Any]:
    """The strongest neurons of every position: where they fire, what they push, their gradients.

    `at` [T, N] has for each position the neurons, strongest first. `up` and `down` are of a
    positive activation; a negative one pushes the other way.
    """
    view, T = both.view, len(both.seen.ids)
    layers = [view.neurons(both.seen.saved, n) for n in range(view.n_layer)]
    F = view.ffn_width
    sizes = np.full((T, view.n_layer, F), -1.0)  # for blocks that have fewer neurons than others
    for n, x in enumerate(layers):
        sizes[:, n, : len(x.rows)] = np.abs(x.active) * np.linalg.norm(x.rows, axis=1)
    flat = sizes.reshape(T, -1)
    N = max(1, min(NEURONS, sum(len(x.rows) for x in layers), NEURONS * 24 // T))
    chosen = largest(flat, N)
    distinct = np.unique(chosen)
    found: dict[str, list[Any]] = {name: [] for name in ("active", "slope", "up", "down", "norm")}
    for n in range(view.n_layer):
        mine = distinct[distinct // F == n] % F
        if len(mine) == 0:
            continue
        pushes = both.seen.logits_of(
            view.norm_with_fixed_scale(both.seen.saved, 0, layers[n].rows[mine])
        )
        found["up"].append(largest(pushes, PUSHED))
        found["down"].append(largest(-pushes, PUSHED))
        found["norm"].append(np.linalg.norm(layers[n].rows[mine], axis=1))
        found["active"].append(layers[n].active[:, mine].T)
        found["slope"].append(layers[n].rows[mine] @ both.back[both.mlp(n)].T)
    joined = {name: np.concatenate(rows) for name, rows in found.items()}
    return {
        "layer": distinct // F,
        "number": distinct % F,
        "at": np.searchsorted(distinct, chosen),
        **joined,
    }
