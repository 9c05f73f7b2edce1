"""Differences by hand: norms, places, verdicts, what rounding allows, and the next token."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npgpt.compare.differences import (
    FLOAT64,
    GRADIENT_ROUNDINGS,
    LEAST_ROUNDING,
    ROUNDINGS,
    allowed_by_rounding,
    difference,
    first_beyond,
    logits_difference,
    measured_by,
)


def test_a_difference_by_hand():
    ours = np.array([[3.0, 0.0], [0.0, 4.0]])  # norm 5
    theirs = np.array([[3.0, 0.3], [0.0, 3.6]])  # Δ: 0.3 and -0.4, norm 0.5
    row = difference("h.0", ours, theirs, allowed=0.25)
    assert row.station == "h.0"
    assert row.max_abs == pytest.approx(0.4)
    assert row.relative == pytest.approx(0.1)
    assert row.tolerance == pytest.approx(0.05)
    assert row.share == pytest.approx(2)
    assert (row.worst, row.ours, row.theirs) == ((1, 1), 4.0, 3.6)
    assert row.verdict == "beyond"
    assert difference("h.0", ours, theirs, allowed=0.6).verdict == "ok"


def test_float32_arrays_are_subtracted_in_float64():
    ours = np.array([1.0], np.float32)
    row = difference("x", ours, np.array([1 + 1e-9]), allowed=1.0)
    assert row.max_abs == pytest.approx(1e-9, rel=1e-6)


def test_a_number_without_axes():
    row = difference("loss", np.array(2.0), np.array(2.5), allowed=0.1)
    assert (row.worst, row.max_abs, row.relative, row.verdict) == ((), 0.5, 0.25, "beyond")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sides", ["ours", "theirs", "both"])
def test_what_is_not_finite_is_never_ok(value, sides):
    ours, theirs = np.ones((2, 3)), np.ones((2, 3))
    theirs[0, 1] = 7  # a larger difference elsewhere is not the worst
    for array in {"ours": [ours], "theirs": [theirs], "both": [ours, theirs]}[sides]:
        array[1, 2] = value
    row = difference("ln_f", ours, theirs, allowed=math.inf)
    assert (row.verdict, row.worst, row.share) == ("NaN/inf", (1, 2), math.inf)


@pytest.mark.parametrize("allowed", [math.inf, math.nan])
def test_a_tolerance_that_is_not_finite_excuses_nothing(allowed):
    row = difference("grad.k", np.ones(2), np.array([1.0, 5.0]), allowed=allowed, size=allowed)
    assert (row.verdict, row.worst, row.share) == ("NaN/inf", (1,), math.inf)


def test_numbers_whose_norm_overflows_are_not_ok():
    ours = np.full(3, 1e200)
    allowed = allowed_by_rounding("h.0", ours, 0.0, "float64")
    assert difference("h.0", ours, np.zeros(3), allowed=allowed).verdict == "NaN/inf"


def test_zeros_against_zeros_and_against_something():
    zeros = np.zeros(3)
    same = difference("grad.a", zeros, zeros, allowed=0.0)
    assert (same.relative, same.share, same.verdict) == (0, 0, "ok")
    other = difference("grad.a", zeros, np.array([0, 1e-9, 0]), allowed=0.0)
    assert (other.relative, other.share, other.verdict) == (math.inf, math.inf, "beyond")
    noise = difference("grad.a", zeros, np.array([0, 1e-9, 0]), allowed=1e-8)
    assert noise.share == pytest.approx(0.1)
    assert noise.verdict == "ok"


def test_the_first_beyond_is_the_first_in_order():
    rows = [
        difference(name, np.ones(1), np.array([1 + delta]), allowed=0.1)
        for name, delta in (("a", 0.01), ("b", 0.2), ("c", 9.0))
    ]
    found = first_beyond(rows)
    assert found is not None
    assert found.station == "b"
    assert first_beyond(rows[:1]) is None


def test_rounding_allows_a_multiple_of_what_was_measured():
    ours = np.array([3, 4], np.float32)
    assert allowed_by_rounding("h.0", ours, 1e-4, "float32") == pytest.approx(1e-4 * ROUNDINGS)
    gradient = allowed_by_rounding("grad.x", ours, 1e-4, "float32")
    assert gradient == pytest.approx(1e-4 * GRADIENT_ROUNDINGS)
    least = allowed_by_rounding("h.0", ours, 0.0, "float32")
    assert least == pytest.approx(5 * LEAST_ROUNDING * ROUNDINGS)


@pytest.mark.parametrize(
    ("ours", "theirs", "wanted"),
    [
        ("float64", "float64", FLOAT64),
        ("float64", "float32", 1),
        ("float32", "float64", 1),
        ("float32", "float32", 1),
    ],
)
def test_the_coarser_precision_counts(ours, theirs, wanted):
    array = np.array([3, 4], ours)
    assert allowed_by_rounding("h.0", array, 1e-4, theirs) == pytest.approx(
        1e-4 * ROUNDINGS * wanted
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_storing_in_half_precision_stays_within(dtype, rng):
    """Values as large as activations, and as small as weights of attention or gradients."""
    for scale in (1e-6, 1.0, 1e3):
        ours = (scale * rng.standard_normal((40, 50))).astype(dtype)
        allowed = allowed_by_rounding("h.0", ours, 0.0, "float16")
        assert difference("h.0", ours, ours.astype(np.float16), allowed=allowed).verdict == "ok"
        assert allowed_by_rounding("h.0", ours, 0.0, "bfloat16") == pytest.approx(
            np.linalg.norm(ours) / 256, rel=1e-5
        )


def test_the_bias_of_the_keys_is_measured_by_their_weight():
    for keys in ("encoder.layer.3.attention.self.key", "decoder.layers.0.encoder_attn.k_proj"):
        assert measured_by(f"grad.{keys}.bias") == f"grad.{keys}.weight"
        assert measured_by(f"{keys}.bias") == f"{keys}.bias"
    for name in ("logits", "grad.h.0.attn.c_attn.bias", "grad.layers.0.self_attn.q_proj.bias"):
        assert measured_by(name) == name
    ours = np.array([1e-9, 0.0])
    assert allowed_by_rounding("grad.k", ours, 0.0, "float32", 5.0) == pytest.approx(
        5 * LEAST_ROUNDING * GRADIENT_ROUNDINGS
    )
    row = difference("grad.k", ours, -ours, allowed=1e-3, size=5.0)
    assert row.relative == pytest.approx(4e-10)
    assert row.tolerance == pytest.approx(2e-4)


def test_a_tiny_loss_is_measured_in_nats():
    """log Σ exp - logit is as exact as the logits, however small it comes out."""
    allowed = allowed_by_rounding("loss", np.array(1e-6, np.float32), 0.0, "float32")
    assert allowed == pytest.approx(LEAST_ROUNDING * ROUNDINGS)


def test_logits_by_hand():
    """p = (1/2, 1/4, 1/4) against q = (1/4, 1/2, 1/4): KL = 1/2 log 2 - 1/4 log 2."""
    p, q = np.log([2.0, 1, 1]), np.log([1.0, 2, 1])
    found = logits_difference(np.array([p, p]), np.array([p + 7, q]))
    assert (found.positions, found.agreeing, found.first_disagreement) == (2, 1, 1)
    assert found.gap == pytest.approx(math.log(2))
    assert found.kl_max == pytest.approx(math.log(2) / 4)
    assert found.kl_mean == pytest.approx(math.log(2) / 8)
    assert [token for token, _ in found.ours] == [0, 1, 2]
    assert [p for _, p in found.ours] == pytest.approx([0.5, 0.25, 0.25])
    assert [token for token, _ in found.theirs] == [1, 0, 2]


def test_equal_logits():
    logits = np.random.default_rng(0).standard_normal((4, 30)).astype(np.float32)
    found = logits_difference(logits, logits)
    assert (found.agreeing, found.first_disagreement, found.gap) == (4, None, 0)
    assert found.kl_max == 0
    assert len(found.ours) == 5
    assert found.ours == found.theirs


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("sides", ["ours", "theirs", "both"])
def test_logits_that_are_not_finite_have_no_divergence_and_nan_no_argmax(value, sides):
    ours, theirs = np.ones((3, 4)), np.ones((3, 4))
    for array in {"ours": [ours], "theirs": [theirs], "both": [ours, theirs]}[sides]:
        array[1, 0] = value  # where the argmax is in any case
    found = logits_difference(ours, theirs)
    assert math.isnan(found.kl_mean)
    assert math.isnan(found.kl_max)
    agrees = not math.isnan(value)
    assert (found.agreeing, found.first_disagreement) == ((3, None) if agrees else (2, 1))
