"""Beyond the measured lengths: sums against loops, inverses against a search, intervals against the planted law."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import binom

from isorun.bench.complexity import Fit, fit
from isorun.bench.extrapolate import Estimate, generation, largest, predict, saving

LENGTHS = (128, 256, 512, 1024, 2048)
FORWARD, STEP = (250e3, 1e3, 1.0), (900e3, 40.0, 0.0)


def law(n: float, coefficients: Sequence[float]) -> float:
    return sum(c * n**power for power, c in enumerate(coefficients))


def exact(coefficients: Sequence[float]) -> Fit:
    return fit(LENGTHS, [[law(n, coefficients)] * 5 for n in LENGTHS])


def noisy(coefficients: Sequence[float], seed: int) -> Fit:
    rng = np.random.default_rng(seed)
    blocks = [(law(n, coefficients) * np.exp(0.05 * rng.standard_normal(9))).tolist() for n in LENGTHS]
    return fit(LENGTHS, blocks)


def test_a_prediction_is_the_law() -> None:
    assert predict(exact(FORWARD), 32768) == pytest.approx([law(32768, FORWARD)] * 3, rel=1e-6)


def test_predictions_far_beyond_the_range_hold_the_law() -> None:
    runs = 300
    found = [predict(noisy(FORWARD, seed), 16 * max(LENGTHS)) for seed in range(runs)]
    held = sum(low <= law(16 * max(LENGTHS), FORWARD) <= high for low, _, high in found)
    assert binom.ppf(0.001, runs, 0.95) <= held <= binom.ppf(0.999, runs, 0.95)
    assert np.median([high / low for low, _, high in found]) < 1.3


@pytest.mark.parametrize("budget", [260e3, 5e6, 1e9, 3.7e12])
def test_the_largest_length_is_the_last_that_fits(budget: float) -> None:
    found = largest(exact(FORWARD), budget)
    assert law(found.mid, FORWARD) <= budget * (1 + 1e-6)
    assert law(found.mid + 1, FORWARD) >= budget * (1 - 1e-6)


def test_a_budget_that_nothing_fits_and_one_that_does_not_bind() -> None:
    assert largest(exact(FORWARD), 100e3).mid == 0
    assert largest(exact((5.0, 0, 0)), 6.0) == (math.inf, math.inf, math.inf)
    assert largest(exact((5.0, 0, 0)), 4.0).high == 0


def test_the_interval_of_the_largest_length_holds_the_true_one() -> None:
    runs, truth = 200, 20000
    budget = law(truth, FORWARD)
    held = sum(
        found.low <= truth <= found.high + 1 for seed in range(runs) if (found := largest(noisy(FORWARD, seed), budget))
    )
    assert held >= binom.ppf(0.001, runs, 0.95)


@pytest.mark.parametrize(("prompt", "tokens"), [(1, 1), (1, 100), (128, 1), (128, 2), (500, 1000)])
def test_a_generation_is_the_sum_of_its_calls(prompt: int, tokens: int) -> None:
    alone = sum(law(prompt + i, FORWARD) for i in range(tokens))
    cached = law(prompt, FORWARD) + sum(law(prompt + i, STEP) for i in range(tokens - 1))
    assert generation(exact(FORWARD), None, prompt, tokens).mid == pytest.approx(alone, rel=1e-6)
    assert generation(exact(FORWARD), exact(STEP), prompt, tokens).mid == pytest.approx(cached, rel=1e-6)


def test_a_cache_saves_a_power_of_n() -> None:
    linear = exact((0, 1e3, 0)), exact((1e3, 0, 0))
    with_cache, without = ([generation(linear[0], step, 1, n).mid for n in (1000, 2000)] for step in (linear[1], None))
    assert with_cache[1] / with_cache[0] == pytest.approx(2, rel=1e-2)
    assert without[1] / without[0] == pytest.approx(4, rel=1e-2)


def test_what_a_cache_saves_is_the_ratio_of_both_with_an_honest_interval() -> None:
    alone = sum(law(64 + i, FORWARD) for i in range(1000))
    truth = alone / (law(64, FORWARD) + sum(law(64 + i, STEP) for i in range(999)))
    assert saving(exact(FORWARD), exact(STEP), 64, 1000).mid == pytest.approx(truth, rel=1e-6)
    runs = 200
    found = [saving(noisy(FORWARD, seed), noisy(STEP, 1000 + seed), 64, 1000) for seed in range(runs)]
    held = sum(low <= truth <= high for low, _, high in found)
    assert binom.ppf(0.001, runs, 0.95) <= held


def test_a_generation_has_an_honest_interval() -> None:
    runs = 200
    truth = law(64, FORWARD) + sum(law(64 + i, STEP) for i in range(999))
    found = [generation(noisy(FORWARD, seed), noisy(STEP, 1000 + seed), 64, 1000) for seed in range(runs)]
    held = sum(low <= truth <= high for low, _, high in found)
    assert binom.ppf(0.001, runs, 0.95) <= held


def test_a_law_without_any_noise_to_judge_by_has_no_interval() -> None:
    unsure = fit((1, 2, 4), [[1.0], [2.0], [4.0]])
    assert predict(unsure, 8) == Estimate(0.0, pytest.approx(8.0), math.inf)
    assert generation(unsure, unsure, 1, 3).high == math.inf


def test_what_makes_no_sense_is_refused() -> None:
    law_ = exact(FORWARD)
    with pytest.raises(ValueError, match="length of at least 1, got 0"):
        predict(law_, 0)
    with pytest.raises(ValueError, match="budget must be positive and finite, got -1"):
        largest(law_, -1)
    with pytest.raises(ValueError, match="got 0 and 5"):
        generation(law_, None, 0, 5)
