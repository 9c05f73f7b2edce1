"""The rotary settings of a config.json: read, checked, and the angles that follow (article 6.2)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from npgpt.files.checkpoint import shortened
from npgpt.files.kinds import is_number
from npgpt.ops import rope

ORIGINAL = "original_max_position_embeddings"
# rope_type -> the numbers it needs besides rope_theta
ROPE_TYPES: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", ORIGINAL),
    "yarn": ("factor", ORIGINAL),
    "longrope": (ORIGINAL,),
}
# … and those it may have
OPTIONAL = {
    "yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"),
    "longrope": ("factor", "attention_factor"),
}
LARGEST = 1e9  # of these numbers; with 1 / LARGEST as the smallest, no angle overflows
LISTS = ("short_factor", "long_factor")  # of longrope, a number for each pair
# … and what is known beside the numbers, for any type; the last changes nothing.
OTHERS = ("rope_type", "partial_rotary_factor", ORIGINAL, "finetuned")
OF_TYPE = {"yarn": ("truncate",), "longrope": LISTS}


def read_rotary(raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`rope_theta`, where it stands there, and `rope_scaling` with its `rope_type` spelled out.

    They may stand in `rope_theta` and `rope_scaling` or, as transformers 5 writes them, together in
    `rope_parameters`. The length that a model was first trained for may stand outside as well, and
    is `max_position_embeddings` where it stands nowhere.
    """
    rotary = raw.get("rope_scaling") or raw.get("rope_parameters")
    if rotary is None:
        return {}
    if not isinstance(rotary, Mapping):
        raise ValueError(f"{where}: the rotary settings are {rotary!r:.60}, not a JSON object.")
    scaling = {key: value for key, value in rotary.items() if key not in ("type", "rope_theta")}
    rope_type = scaling.setdefault("rope_type", rotary.get("type", "default"))
    if (scaling.get("partial_rotary_factor") or 1) != 1:
        raise ValueError(f"{where}: partial_rotary_factor is set, but npgpt turns whole heads.")
    if rope_type in ("llama3", "yarn", "longrope"):
        inside = scaling.get(ORIGINAL, raw.get("max_position_embeddings"))
        scaling[ORIGINAL] = raw.get(ORIGINAL, inside)
    tables: tuple[Mapping[str, tuple[str, ...]], ...] = (ROPE_TYPES, OPTIONAL, OF_TYPE)
    known = {*OTHERS, *(name for table in tables for name in table.get(str(rope_type), ()))}
    unknown = [key for key in scaling if key not in known and scaling[key]]
    if unknown and str(rope_type) in ROPE_TYPES:  # another type is refused as such
        warnings.warn(
            f"{where}: npgpt does not know {shortened(unknown)} among the rotary settings, which "
            "may change results.",
            UserWarning,
            stacklevel=5,  # the line that called the loader
        )
    found = {"rope_theta": rotary["rope_theta"]} if "rope_theta" in rotary else {}
    return {**found, "rope_scaling": None if rope_type == "default" else scaling}


class Rotary(NamedTuple):
    """How heads turn: their width, `rope_theta`, `max_position_embeddings` and `rope_scaling`."""

    d_h: int
    theta: float
    positions: int
    scaling: Mapping[str, Any]

    @property
    def rope_type(self) -> str:
        """A key of `ROPE_TYPES`."""
        return str(self.scaling.get("rope_type", "default"))

    def frequencies(self, length: int) -> np.ndarray:
        """The angle of each pair from one position to the next [d_h/2], in a text so long."""
        d_h, theta, scaling = self.d_h, self.theta, self.scaling
        numbers = {name: scaling[name] for name in ROPE_TYPES[self.rope_type]}
        match self.rope_type:
            case "linear":
                return rope.linear_frequencies(d_h, theta, **numbers)
            case "dynamic":
                return rope.dynamic_frequencies(
                    d_h, theta, max_position_embeddings=self.positions, length=length, **numbers
                )
            case "llama3":
                return rope.llama3_frequencies(d_h, theta, **numbers)
            case "yarn":
                given = ("beta_fast", "beta_slow", "truncate")
                numbers |= {name: scaling[name] for name in given if scaling.get(name) is not None}
                return rope.yarn_frequencies(d_h, theta, **numbers)
            case "longrope":
                factors = scaling["long_factor" if length > scaling[ORIGINAL] else "short_factor"]
                return rope.default_frequencies(d_h, theta) / np.array(factors, float)
        return rope.default_frequencies(d_h, theta)

    @property
    def attention_factor(self) -> float:
        """What queries and keys are multiplied by as they are turned; 1 but for yarn and longrope.

        With more tokens to look at, softmax would spread more evenly; this sharpens it again.
        """
        scaling = self.scaling
        if "attention_factor" not in OPTIONAL.get(self.rope_type, ()):
            return 1.0
        if (given := scaling.get("attention_factor")) is not None:
            return float(given)
        if self.rope_type == "yarn":
            scales = (scaling.get(name) for name in ("mscale", "mscale_all_dim"))
            return rope.yarn_attention_factor(scaling["factor"], *scales)
        if self.rope_type == "longrope":
            factor = scaling.get("factor") or self.positions / scaling[ORIGINAL]
            return math.sqrt(1 + math.log(max(factor, 1)) / math.log(scaling[ORIGINAL]))
        return 1.0

    @property
    def same_angles(self) -> int | None:
        """The length beyond which all tokens of a text get other angles; None if there is none."""
        if self.rope_type == "longrope":
            return int(self.scaling[ORIGINAL])
        return self.positions if self.rope_type == "dynamic" else None

    @property
    def context(self) -> int:
        """How many tokens a text may have: `max_position_embeddings`, or as far as it is scaled."""
        if self.rope_type == "dynamic":
            return int(self.scaling["factor"] * self.positions)
        if self.rope_type == "yarn":
            return max(int(self.scaling["factor"] * self.scaling[ORIGINAL]), self.positions)
        return self.positions

    def check(self) -> None:
        """Raise ValueError for heads that cannot turn, and a rotary type without its numbers."""
        scaling, kind = self.scaling, self.rope_type
        if self.d_h % 2:
            raise ValueError(f"a head is {self.d_h} wide, but rotary positions turn pairs.")
        if scaling and ("rope_type" not in scaling or "rope_theta" in scaling):
            raise ValueError(
                f"rope_scaling is {scaling!r:.80}; give the type in it as rope_type, and "
                "rope_theta beside it."
            )
        if kind not in ROPE_TYPES:
            offered = ", ".join(ROPE_TYPES)
            raise ValueError(
                f"rope_type {scaling['rope_type']!r:.60} is not offered; npgpt turns by one of "
                f"{offered}."
            )
        optional = [name for name in OPTIONAL.get(kind, ()) if scaling.get(name) is not None]
        least = 1 if kind == "dynamic" else 1 / LARGEST  # below 1 the context would shrink, to 0
        for name in (*ROPE_TYPES[kind], *optional):
            if not is_number(scaling.get(name)) or not least <= scaling[name] <= LARGEST:
                raise ValueError(
                    f"rope_type {kind!r} needs {name}, a number from {least:g} to {LARGEST:g}, but "
                    f"it is {scaling.get(name)!r:.60}."
                )
        if kind == "llama3" and scaling["low_freq_factor"] >= scaling["high_freq_factor"]:
            raise ValueError("low_freq_factor must be below high_freq_factor.")
        if kind == "dynamic" and self.d_h == 2:
            raise ValueError("rope_type 'dynamic' needs heads wider than one pair.")
        if kind == "yarn" and self.theta == 1:
            raise ValueError("rope_type 'yarn' needs a rope_theta other than 1.")
        if kind == "yarn" and not isinstance(scaling.get("truncate", True), bool):
            raise ValueError(f"truncate is {scaling['truncate']!r:.60}, but must be true or false.")
        if kind == "longrope":
            self._check_lists()

    def _check_lists(self) -> None:
        pairs = self.d_h // 2
        if self.scaling[ORIGINAL] <= 1:
            raise ValueError(
                f"{ORIGINAL} is {self.scaling[ORIGINAL]}, but rope_type 'longrope' needs more than "
                "one token."
            )
        for name in LISTS:
            factors = self.scaling.get(name)
            numbers = factors if isinstance(factors, list) else []
            fit = (is_number(f) and 1 / LARGEST <= f <= LARGEST for f in numbers)
            if len(numbers) != pairs or not all(fit):
                raise ValueError(
                    f"rope_type 'longrope' needs {name}, a list of {pairs} numbers from "
                    f"{1 / LARGEST:g} to {LARGEST:g}, one for each pair of a head, but it is "
                    f"{factors!r:.60}."
                )
