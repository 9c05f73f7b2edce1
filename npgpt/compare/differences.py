"""How far two arrays of the same station lie apart, and how far rounding alone would take them.

Pure functions on arrays; npgpt's is always the one that differences are relative to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from npgpt.compare.activations import GRAD
from npgpt.ops.softmax import log_softmax

OK, BEYOND, NOT_FINITE = "ok", "beyond", "NaN/inf"

# Measured: two correct programs were at most 5 times npgpt's own rounding apart, the exact GELU and
# the tanh form 70 times and more (from a width of 64 on). The gradients of ill-conditioned models
# err along few directions, so they scatter more: up to 36 times.
ROUNDINGS, GRADIENT_ROUNDINGS = 30, 100
# Float64 rounds 2**29 times finer. Part of that is kept as a margin, because float32 may saturate
# and then shows less rounding than there is: 1 - tanh² can be exactly 0.
FLOAT64 = 2.0**-19
LEAST_ROUNDING = 2 * float(np.finfo(np.float32).eps)  # relative; float32 may be exact by chance

KEY_BIASES = (".key.bias", ".k_proj.bias", ".k_lin.bias")  # GPT-2 has them within c_attn.bias

# Half the relative distance of two neighbours, and half the smallest number.
HALF_PRECISION = {"float16": (2.0**-11, 2.0**-25), "bfloat16": (2.0**-8, 0.0)}


class Difference(NamedTuple):
    """One station in both implementations."""

    station: str
    max_abs: float  # max |Δ|
    relative: float  # ‖Δ‖ / ‖npgpt‖ of the station that it is `measured_by`
    tolerance: float  # the largest `relative` that is ok
    worst: tuple[int, ...]  # where |Δ| is largest, or the first NaN or infinity
    ours: float  # the two values there
    theirs: float
    share: float  # of the tolerance that is used; more than 1 is beyond
    verdict: str


class LogitsDifference(NamedTuple):
    """What the difference means for the next token."""

    positions: int  # T
    agreeing: int  # positions with the same argmax; none where a logit is NaN
    first_disagreement: int | None  # the first other position
    gap: float  # between npgpt's logits of the two tokens there
    kl_mean: float  # KL(npgpt ‖ other) in nats, over positions
    kl_max: float
    ours: list[tuple[int, float]]  # the likeliest tokens after the last position: (id, probability)
    theirs: list[tuple[int, float]]


def measured_by(station: str) -> str:
    """The station whose size and rounding say what is small for this one: nearly always itself.

    The bias of the keys shifts all scores of a query by the same number, which softmax takes out.
    So its gradient is 0 except for rounding, and sometimes exactly 0. The gradient of the keys'
    weight shows how much rounding that is.
    """
    if station.startswith(GRAD) and station.endswith(KEY_BIASES):
        return station.removesuffix("bias") + "weight"
    return station


def difference(
    station: str,
    ours: np.ndarray,
    theirs: np.ndarray,
    *,
    allowed: float,
    size: float | None = None,
) -> Difference:
    """Compare two arrays of the same shape.

    NaN or infinity is never ok: on one side, on both at the same place, or in `allowed`.

    Args:
        allowed: the largest ‖Δ‖ that is ok.
        size: what `relative` is relative to; None: ‖ours‖.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.asarray(np.subtract(theirs, ours, dtype=np.float64))
        np.abs(apart, out=apart)
        distance, norm = float(np.linalg.norm(apart)), norm_of(ours) if size is None else size
    not_finite = ~np.isfinite(apart)
    place = int((not_finite if not_finite.any() else apart).argmax())
    worst = tuple(int(i) for i in np.unravel_index(place, apart.shape))
    finite = math.isfinite(apart[worst]) and math.isfinite(allowed)
    return Difference(
        station=station,
        max_abs=float(apart.max()),
        relative=_ratio(distance, norm),
        tolerance=_ratio(allowed, norm),
        worst=worst,
        ours=float(ours[worst]),
        theirs=float(theirs[worst]),
        share=_ratio(distance, allowed) if finite else math.inf,
        verdict=NOT_FINITE if not finite else OK if distance <= allowed else BEYOND,
    )


def allowed_by_rounding(
    station: str, ours: np.ndarray, rounding: float, precision: str, size: float | None = None
) -> float:
    """The ‖Δ‖ that rounding may explain.

    Args:
        ours: npgpt's array.
        rounding: what float32 does to it, see `npgpt.compare.activations.measure_rounding`.
        precision: what the other side computed or stored: float64, float32, float16, bfloat16. The
            coarser of the two sides counts.
        size: the least size of what was rounded; None: ‖ours‖.
    """
    norm = norm_of(ours)
    size = norm if size is None else size
    # The loss is a difference of two numbers as large as logits; its natural size is one nat.
    least = LEAST_ROUNDING * (max(size, 1.0) if station == "loss" else size)
    allowed = max(rounding, least)
    allowed *= GRADIENT_ROUNDINGS if station.startswith(GRAD) else ROUNDINGS
    if ours.dtype == np.float64 and precision == "float64":
        allowed *= FLOAT64
    if precision in HALF_PRECISION:
        unit, smallest = HALF_PRECISION[precision]
        allowed = max(allowed, unit * norm + smallest * math.sqrt(ours.size))
    return allowed


def first_beyond(rows: Iterable[Difference]) -> Difference | None:
    """The first row that is not ok."""
    return next((row for row in rows if row.verdict != OK), None)


def logits_difference(ours: np.ndarray, theirs: np.ndarray, *, top: int = 5) -> LogitsDifference:
    """Argmax agreement, KL divergence, and the likeliest next tokens of logits [T, V]."""
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    ours_best, theirs_best = ours.argmax(axis=-1), theirs.argmax(axis=-1)  # [T]
    unordered = np.isnan(ours).any(axis=-1) | np.isnan(theirs).any(axis=-1)  # no argmax there
    disagreements = np.flatnonzero((ours_best != theirs_best) | unordered)
    first, gap = None, 0.0
    with np.errstate(all="ignore"):  # NaN and infinite logits have been reported by then
        if disagreements.size:
            first = int(disagreements[0])
            gap = float(ours[first, ours_best[first]] - ours[first, theirs_best[first]])
        log_p, log_q = log_softmax(ours), log_softmax(theirs)
        kl = np.maximum((np.exp(log_p) * (log_p - log_q)).sum(axis=-1), 0)  # [T]
    return LogitsDifference(
        positions=len(ours),
        agreeing=len(ours) - disagreements.size,
        first_disagreement=first,
        gap=gap,
        kl_mean=float(kl.mean()),
        kl_max=float(kl.max()),
        ours=_likeliest(log_p[-1], top),
        theirs=_likeliest(log_q[-1], top),
    )


def _likeliest(log_probs: np.ndarray, top: int) -> list[tuple[int, float]]:
    ids = np.argsort(-log_probs, kind="stable")[:top]
    return [(int(i), float(np.exp(log_probs[i]))) for i in ids]


def norm_of(array: np.ndarray) -> float:
    """‖array‖, computed in float64; infinite where it overflows."""
    with np.errstate(over="ignore"):
        return float(np.linalg.norm(array.astype(np.float64)))


def _ratio(part: float, whole: float) -> float:
    if part == 0:
        return 0.0
    return part / whole if whole else math.inf
