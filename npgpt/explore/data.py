"""Everything that a page shows, as plain values and arrays; `page.py` makes a file of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from npgpt.explore import heads, parts
from npgpt.explore.both_ways import BothWays, there_and_back
from npgpt.models.gpt2.model import GPT2
from npgpt.models.llama.model import Llama
from npgpt.text.labels import labeller, visible
from npgpt.trace.edits import ablate


class Wishes(NamedTuple):
    """What a page begins with, where it is not to choose for itself."""

    position: int | None = None
    target: int | None = None  # a token that may come next at this position
    foil: int | None = None  # and another, to compare it with
    full: bool = False  # all tables of all heads, however large the page becomes


def collect(
    model: GPT2 | Llama,
    ids: list[int],
    bytes_of: Mapping[int, bytes],
    name: str = "model",
    wishes: Wishes = Wishes(),  # noqa: B008
) -> dict[str, Any]:
    """Both passes over a text, each head and network silenced once, as one record.

    Args:
        bytes_of: id -> bytes, {} without a vocabulary.
        name: what the model is called, for the title and the Python lines.

    Raises:
        ValueError: fewer than two tokens; a position that there is not; what `forward` refuses.
    """
    both = there_and_back(model, ids)
    T, view = len(ids), both.view
    all_heads = [(n, head) for n in range(view.n_layer) for head in range(view.n_head)]
    effects = ablate(model, ids, heads=all_heads, mlps=range(view.n_layer))
    start = _start(both, wishes)
    every_head = heads.heads(both, effects[: len(all_heads)])
    order = heads.ranked(both, every_head, heads.star(both, start["position"]))
    last = int(np.argmax(both.seen.stations["logits"][-1]))
    targets = np.array([*ids[1:], last])
    wanted = [i for i in (wishes.target, wishes.foil) if i is not None]
    answers = parts.answers(both, targets, {start["position"]: wanted})
    record = {
        "model": name,
        **_sizes(both),
        "text": visible(b"".join(bytes_of.get(i, b"") for i in ids)).replace("␣", " "),
        "tokens": tokens(ids, bytes_of),
        "characters": characters(ids, bytes_of),
        "loss": both.loss,
        "losses": both.losses,
        "start": start,
        "stars": [None if s is None else s._asdict() for s in heads.stars(both)],
        "stream": parts.stream(both, targets),
        "heads": every_head,
        "tables": heads.tables(both, order, wishes.full),
        "vectors": heads.vectors(both, order, wishes.full),
        "moved": heads.moved(both),
        "neurons": parts.neurons(both),
        "answers": answers,
        "shares": parts.shares(both, answers["ids"]),
        "mlps": [e._asdict() for e in effects[len(all_heads) :]],
        "angles": None if view.frequencies is None else view.frequencies(T),
    }
    record["labels"] = _labels(record, bytes_of)
    return record


def _start(both: BothWays, wishes: Wishes) -> dict[str, Any]:
    """The position that is followed at first: the one with the brightest star that is scored."""
    T = len(both.seen.ids)
    position = wishes.position
    if position is None:
        found = [(s.weight, t) for t, s in enumerate(heads.stars(both)[:-1]) if s is not None]
        position = max(found, default=(0, T - 2))[1]
    elif not 0 <= position < T:
        raise ValueError(f"there is no position {position}: the text has {T} tokens, from 0.")
    V = both.seen.stations["logits"].shape[-1]
    for token in (wishes.target, wishes.foil):
        if token is not None and not 0 <= token < V:
            raise ValueError(f"there is no token {token}; the model has {V} ids, from 0.")
    if wishes.target is not None and wishes.target == wishes.foil:
        raise ValueError(f"target and foil are the same token, {wishes.foil}; choose another foil.")
    return {"position": position, "target": wishes.target, "foil": wishes.foil}


def _sizes(both: BothWays) -> dict[str, Any]:
    model, view = both.model, both.view
    T, d = both.seen.stations["embed"].shape
    d_h = both.in_heads(f"{both.attn(0)}.context").shape[-1]
    if isinstance(model, Llama):
        activation, divisors = model.config.hidden_act, [d_h**0.5] * view.n_layer
        has_norms = model.config.family.head_norms
    else:
        activation, has_norms = model.config.activation_function, False
        divisors = [model.config.attention_divisor(n) for n in range(view.n_layer)]
    return {
        "kind": "llama" if isinstance(model, Llama) else "gpt2",
        "sizes": {
            "L": view.n_layer,
            "H": view.n_head,
            "G": view.n_group,
            "T": T,
            "d": d,
            "d_h": d_h,
            "F": view.ffn_width,
            "V": both.seen.stations["logits"].shape[-1],
        },
        "divisors": divisors,
        "out": both.out,
        "windows": model.config.windows,
        "has_bias": any("q_proj.bias" in name or "c_attn.bias" in name for name in model.params),
        "has_norms": has_norms,
        "activation": activation,
        "table": model.TABLE,
        "lm_head": model.head,
    }


def tokens(ids: list[int], bytes_of: Mapping[int, bytes]) -> list[dict[str, Any]]:
    """Id, label and bytes; `part` where the bytes are no whole characters."""
    label = labeller(bytes_of)
    return [
        {
            "id": i,
            "label": label(i),
            "bytes": bytes_of.get(i, b"").hex(" ").upper(),
            "part": not _is_text(bytes_of.get(i, b"")),
        }
        for i in ids
    ]


def characters(ids: list[int], bytes_of: Mapping[int, bytes]) -> list[dict[str, Any]]:
    """The characters whose bytes are in several tokens: which ones, from `first` to `last`."""
    found, start = [], None
    for t, i in enumerate(ids):
        if start is None and _is_text(bytes_of.get(i, b"")):
            continue
        start = t if start is None else start
        joined = b"".join(bytes_of.get(each, b"") for each in ids[start : t + 1])
        if _is_text(joined):
            found.append({"first": start, "last": t, "text": visible(joined)})
            start = None
    return found


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _labels(record: dict[str, Any], bytes_of: Mapping[int, bytes]) -> dict[str, str]:
    """The labels of all ids that stand in the record."""
    neurons = record["neurons"]
    arrays = (record["stream"]["ids"], record["answers"]["ids"], neurons["up"], neurons["down"])
    seen = {int(i) for array in arrays for i in array.flat} | {t["id"] for t in record["tokens"]}
    label = labeller(bytes_of)
    return {str(i): label(i) for i in sorted(seen)}
