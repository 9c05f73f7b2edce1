"""What `python -m npgpt.trace --json` says: the whole journey as one object.

Tokens have their id and their label; what JSON has no number for (NaN, infinity) is null. A Llama
has more to say: the angles that queries and keys are turned by, heads that share keys, a neuron's
gate and value.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npgpt.text.labels import Label
from npgpt.trace.journey import Correction, Neuron, Pass, Tokens, weight_station
from npgpt.trace.journey_parts import heads_that_share
from npgpt.trace.report import Journey


def as_json(j: Journey, label: Label) -> dict[str, Any]:
    """Norms and ratios of the corrections at every position, everything else at one."""
    seen, p = j.seen, j.position
    probs = seen.stations[weight_station(seen.parts, j.head.layer)][j.head.head]

    def token(i: int) -> dict[str, Any]:
        return {"id": i, "label": label(i)}

    def tokens(those: Tokens, value: str) -> list[dict[str, Any]]:
        return [{**token(i), value: x} for i, x in those]

    return _for_json(
        {
            "model": j.model,
            "dtype": j.dtype,
            "text": j.text,
            "tokens": [token(i) for i in seen.ids],
            "position": p,
            "target": {**token(j.target), "follows_in_text": j.follows},
            "shapes": {name: [*array.shape] for name, array in seen.stations.items()},
            "corrections": [_correction(c, p) for c in j.corrections],
            "guesses": [
                {**g._asdict(), "likeliest": tokens(g.likeliest, "probability")} for g in j.guesses
            ],
            **_turned(j),
            "head": {**j.head._asdict(), **_sharing(seen, j.head.head), "probs": probs},
            "resting_heads": j.resting,
            "ffn": {
                "layer": j.ffn,
                "neurons": [
                    {**_neuron(n), "up": tokens(n.up, "logit"), "down": tokens(n.down, "logit")}
                    for n in j.neurons
                ],
            },
        }
    )


def _correction(c: Correction, position: int) -> dict[str, Any]:
    norms = {"stream": c.stream, "added": c.added, "ratio": c.ratio}
    return {"station": c.station, **norms, "ratio_at_position": c.ratio[position]}


def _turned(j: Journey) -> dict[str, Any]:
    return {"rotary_angles": j.angles} if len(j.angles) else {}


def _sharing(seen: Pass, head: int) -> dict[str, Any]:
    shared = heads_that_share(seen.parts, head)
    return {"shares_keys_with": [h for h in shared if h != head]} if len(shared) > 1 else {}


def _neuron(n: Neuron) -> dict[str, Any]:
    """Its factors under their own names."""
    facts = n._asdict()
    return facts | facts.pop("factors")


def _for_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _for_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_for_json(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _for_json(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
