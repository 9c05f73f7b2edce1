"""Sampling: which tokens stay, with what probability, and how much chance is used."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npgpt.decoding.sampling import check_settings, next_token_probs, sample

P = np.array([0.1, 0.2, 0.3, 0.4])
LOGITS = np.log(P)
LOGITS.flags.writeable = False


def kept(**settings):
    """The ids that can still come."""
    return np.flatnonzero(next_token_probs(LOGITS, temperature=1.0, **settings)).tolist()


@pytest.mark.parametrize(
    ("top_p", "ids"),
    [
        (0.6, [2, 3]),  # 0.4 does not reach 0.6; 0.3, which crosses it, stays
        (0.39, [3]),
        (0.71, [1, 2, 3]),
        (0.95, [0, 1, 2, 3]),
        (0.0, [3]),
        (1.0, [0, 1, 2, 3]),
        (None, [0, 1, 2, 3]),
    ],
)
def test_top_p_keeps_the_fewest_tokens_that_reach_it(top_p, ids) -> None:
    assert kept(top_p=top_p) == ids


@pytest.mark.parametrize(
    ("top_k", "ids"),
    [(1, [3]), (2, [2, 3]), (4, [0, 1, 2, 3]), (99, [0, 1, 2, 3]), (0, [0, 1, 2, 3])],
)
def test_top_k_keeps_the_likeliest(top_k, ids) -> None:
    assert kept(top_k=top_k) == ids


def test_what_stays_is_rescaled_to_sum_to_1() -> None:
    probs = next_token_probs(LOGITS, temperature=1.0, top_p=0.6)
    np.testing.assert_allclose(probs, [0, 0, 3 / 7, 4 / 7], rtol=1e-14)
    probs = next_token_probs(LOGITS, temperature=1.0, top_k=3)
    np.testing.assert_allclose(probs, [0, 2 / 9, 3 / 9, 4 / 9], rtol=1e-14)


def test_top_p_counts_after_temperature_and_top_k() -> None:
    """Of 3 tokens the likeliest has 4/9, which reaches 0.44; of all 4 it has only 0.4."""
    assert kept(top_p=0.44) == [2, 3]
    assert kept(top_p=0.44, top_k=3) == [3]
    sharp = next_token_probs(LOGITS, temperature=0.5, top_p=0.5)  # P², rescaled: 16/30 > 0.5
    assert np.flatnonzero(sharp).tolist() == [3]


def test_temperature_divides_the_logits() -> None:
    for temperature in (0.5, 1.0, 3.0):
        want = P ** (1 / temperature) / (P ** (1 / temperature)).sum()
        probs = next_token_probs(LOGITS, temperature=temperature)
        np.testing.assert_allclose(probs, want, rtol=1e-13)


def test_of_equals_the_lower_id_comes_first() -> None:
    tied = np.array([1.0, 5.0, 2.0, 5.0, 5.0], np.float32)
    rng = np.random.default_rng(0)
    assert sample(tied, rng) == 1
    assert {sample(tied, rng, temperature=2.0, top_k=1) for _ in range(50)} == {1}
    assert {sample(tied, rng, temperature=2.0, top_p=0.0) for _ in range(50)} == {1}
    assert {sample(tied, rng, temperature=2.0, top_k=2) for _ in range(50)} == {1, 3}


@pytest.mark.parametrize("temperature", [1e-8, 1e-3])
def test_a_temperature_near_0_is_greedy_without_overflow(temperature) -> None:
    logits = np.array([-1e4, 88.0, 89.0, -np.inf], np.float32)
    assert sample(logits, np.random.default_rng(0), temperature=temperature) == 2


@pytest.mark.parametrize(
    ("settings", "reweighted"),
    [
        ({"temperature": 1.0}, P),
        ({"temperature": 0.5}, P**2),
        ({"temperature": 2.0}, P**0.5),
        ({"temperature": 1.0, "top_k": 3}, P * [0, 1, 1, 1]),
        ({"temperature": 1.0, "top_p": 0.6}, P * [0, 0, 1, 1]),
    ],
)
def test_tokens_come_as_often_as_they_should(settings, reweighted) -> None:
    """Pearson's χ² over 2,000 draws: beyond 16.3 for one seed in a thousand."""
    rng, n = np.random.default_rng(4), 2000
    counts = np.bincount([sample(LOGITS, rng, **settings) for _ in range(n)], minlength=4)
    expected = n * reweighted / reweighted.sum()
    possible = expected > 0
    assert not counts[~possible].any()
    chi_square = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    assert chi_square < 16.3


def test_one_uniform_number_a_token_and_none_at_temperature_0() -> None:
    rng, draws = np.random.default_rng(1), np.random.default_rng(1).random(3)
    sample(LOGITS, rng, temperature=0.7)
    sample(LOGITS, rng)
    sample(LOGITS, rng, temperature=5.0, top_k=1)
    assert rng.random() == draws[2]


def test_the_first_token_whose_running_total_exceeds_the_draw() -> None:
    class Fixed(np.random.Generator):
        def __init__(self, draw):
            super().__init__(np.random.PCG64(0))
            self.draw = draw

        def random(self):  # type: ignore[override]
            return self.draw

    logits = np.log([0.5, 0.25, 0.25])
    drawn = [sample(logits, Fixed(u), temperature=1.0) for u in (0.0, 0.49, 0.51, 0.74, 0.76)]
    assert drawn == [0, 0, 1, 1, 2]
    only_last = np.array([-np.inf, -np.inf, 0.0])
    assert sample(only_last, Fixed(0.0), temperature=1.0) == 2  # never one of probability 0
    tenths = np.zeros(10)  # which add up to less than the largest draw
    assert sample(tenths, Fixed(1 - 2**-53), temperature=1.0) == 9
    only_first = np.array([0.0, -np.inf, -np.inf])
    assert sample(only_first, Fixed(1 - 2**-53), temperature=1.0) == 0


def test_the_logits_are_not_changed() -> None:
    logits = np.log(P)
    sample(logits, np.random.default_rng(0), temperature=0.5, top_k=2, top_p=0.5)
    np.testing.assert_array_equal(logits, np.log(P))


@pytest.mark.parametrize("temperature", [1e-300, 1e-320, 5e-324])
def test_the_smallest_temperatures_leave_the_likeliest_only(temperature) -> None:
    probs = next_token_probs(np.array([1.0, 9.0, -50.0]), temperature=temperature)
    assert probs.tolist() == [0, 1, 0]


@pytest.mark.parametrize("broken", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_broken_logits_are_an_error(broken, temperature) -> None:
    logits = np.array([0.0, broken, 1.0])
    with pytest.raises(ValueError, match="the logits are not finite"):
        sample(logits, np.random.default_rng(0), temperature=temperature)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.1}, "temperature must be a finite number of at least 0, but is -0.1"),
        ({"temperature": math.nan}, "temperature must be .* but is nan"),
        ({"temperature": math.inf}, "temperature must be .* but is inf"),
        ({"top_k": -1}, "top_k must be a whole number of at least 0, but is -1"),
        ({"top_k": 2.0}, "top_k must be a whole number .* but is 2.0"),
        ({"top_k": math.nan}, "top_k must be a whole number .* but is nan"),
        ({"top_k": True}, "top_k must be a whole number .* but is True"),
        ({"top_p": -0.1}, "top_p must be a finite number from 0 to 1, but is -0.1"),
        ({"top_p": 1.1}, "top_p must be a finite number from 0 to 1, but is 1.1"),
        ({"top_p": math.nan}, "top_p must be a finite number from 0 to 1, but is nan"),
    ],
)
def test_settings_that_make_no_sense(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        check_settings(**{"temperature": 1.0, "top_k": None, "top_p": None, **settings})


def test_settings_at_their_borders() -> None:
    for top_k in (None, 0, 1, np.int64(3)):
        for top_p in (None, 0, 0.0, 1, 1.0):
            check_settings(0.0, top_k, top_p)


def test_of_many_equals_the_lower_ids_stay() -> None:
    """More than NumPy's quicksort leaves in order by chance; exact quarters reach 0.5 exactly."""
    tied = np.where(np.arange(1000) % 10 == 7, 2.0, -np.inf)
    probs = next_token_probs(tied, temperature=1.0, top_k=4)
    assert np.flatnonzero(probs).tolist() == [7, 17, 27, 37]
    probs = next_token_probs(tied, temperature=1.0, top_k=4, top_p=0.5)
    assert np.flatnonzero(probs).tolist() == [7, 17]
    assert sample(tied, np.random.default_rng(0)) == 7


@pytest.mark.parametrize(("top_p", "kept"), [(0.25, 1), (0.5, 2), (0.75, 3), (0.7500001, 4)])
def test_a_top_p_that_is_reached_exactly_needs_no_further_token(top_p, kept) -> None:
    probs = next_token_probs(np.zeros(4), temperature=1.0, top_p=top_p)
    assert probs.tolist() == [1 / kept] * kept + [0] * (4 - kept)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        *(
            {"temperature": t, **more}
            for t in (0.5, 1.0)
            for more in ({}, {"top_k": 2}, {"top_p": 0.5})
        ),
    ],
    ids=str,
)
def test_no_setting_changes_the_callers_logits(settings, dtype) -> None:
    logits = np.log(P).astype(dtype)
    sample(logits, np.random.default_rng(0), **settings)
    np.testing.assert_array_equal(logits, np.log(P).astype(dtype))
