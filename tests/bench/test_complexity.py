"""Planted laws are recovered, their intervals cover, and growth that differs is told apart."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.optimize import nnls
from scipy.stats import binom

from isorun.bench.complexity import Fit, fit, slope
from isorun.bench.extrapolate import predict
from isorun.bench.timing import Interval

LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
LAW = (250e3, 1e3, 1.0)  # nanoseconds; the terms cross at n = 250 and n = 1000
Blocks = list[list[float]]


def law(n: float, coefficients: Sequence[float] = LAW) -> float:
    return sum(c * n**power for power, c in enumerate(coefficients))


EXPONENT = float(np.polyfit(np.log(LENGTHS), np.log([law(n) for n in LENGTHS]), 1)[0])


def noisy(times: Sequence[float], seed: int, *, blocks: int = 9, noise: float = 0.05) -> Blocks:
    rng = np.random.default_rng(seed)
    return [(time * np.exp(noise * rng.standard_normal(blocks))).tolist() for time in times]


def measured(seed: int = 0, *, lengths: Sequence[int] = LENGTHS, blocks: int = 9, noise: float = 0.05) -> Fit:
    return fit(lengths, noisy([law(n) for n in lengths], seed, blocks=blocks, noise=noise), seed=seed)


def holds(interval: Interval | None, value: float) -> bool:
    return interval is not None and interval.low <= value <= interval.high


@pytest.mark.parametrize("coefficients", [LAW, (0, 3.0, 0), (0, 0, 2.0), (5.0, 0, 0), (5e4, 0, 2.0), (1e4, 7.0, 0)])
def test_an_exact_law_is_recovered(coefficients: tuple[float, float, float]) -> None:
    found = fit(LENGTHS, [[law(n, coefficients)] * 5 for n in LENGTHS])
    assert found.coefficients == pytest.approx(coefficients, rel=1e-6, abs=1e-9)
    assert found.residual < 1e-9
    assert found.lengths == LENGTHS
    for interval, value in zip(found.intervals, coefficients, strict=True):
        assert (interval.low, interval.high) == pytest.approx((value, value), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("terms", [2, 3])
def test_coefficients_are_those_of_scipy(terms: int) -> None:
    rng = np.random.default_rng(4)
    active = set()
    for _ in range(60):
        times = law(1) * np.exp(rng.standard_normal(7))  # no law at all, so that every set of terms comes up
        rows = np.array([[n**power for power in range(terms)] for n in LENGTHS]) / times[:, None]
        scale = rows.max(axis=0)
        expected = nnls(rows / scale, np.ones(7))[0] / scale
        found = fit(LENGTHS, [[time] for time in times], terms=terms, resamples=9).coefficients
        assert found == pytest.approx([*expected.tolist(), *[0.0] * (3 - terms)], rel=1e-6, abs=1e-12)
        active.add(tuple(expected > 0))
    assert len(active) >= terms


def test_intervals_cover() -> None:
    runs = 1000
    fits = [measured(seed) for seed in range(runs)]
    covered = {
        **{f"c{term}": sum(holds(f.intervals[term], LAW[term]) for f in fits) for term in range(3)},
        "exponent": sum(holds(f.exponent_interval, EXPONENT) for f in fits),
        "crossover": sum(holds(f.crossover_interval, LAW[1] / LAW[2]) for f in fits),
        "prediction": sum(low <= law(16384) <= high for low, _, high in (predict(f, 16384) for f in fits)),
    }
    # Of 1000 honest 95 % intervals so many cover in all but one in a thousand cases on either side.
    assert min(covered.values()) >= binom.ppf(0.001, runs, 0.95), covered
    assert max(covered.values()) <= binom.ppf(0.999, runs, 0.95), covered
    assert all(0.93 * runs <= covered[f"c{term}"] <= 0.97 * runs for term in range(3)), covered
    widths = np.median([[(i.high - i.low) / c for i, c in zip(f.intervals, LAW, strict=True)] for f in fits], axis=0)
    assert (widths < [0.3, 0.3, 0.15]).all(), widths  # wide intervals cover, too, and say nothing


@pytest.mark.parametrize("lengths", [(1024, 2048), LENGTHS[1:5]])
def test_a_straight_line_covers_far_beyond_its_lengths(lengths: tuple[int, ...]) -> None:
    runs, straight = 400, LAW[:2]
    times = [law(n, straight) for n in lengths]
    found = [predict(fit(lengths, noisy(times, seed), terms=2, seed=seed), 32768) for seed in range(runs)]
    covered = sum(low <= law(32768, straight) <= high for low, _, high in found)
    assert binom.ppf(0.001, runs, 0.95) <= covered <= binom.ppf(0.999, runs, 0.95)


def test_the_estimates_are_near_the_truth() -> None:
    found = measured(1)
    assert found.coefficients == pytest.approx(LAW, rel=0.15)
    assert found.crossover == pytest.approx(LAW[1] / LAW[2], rel=0.2)
    assert 0 < found.residual < 0.05
    assert found.predict(3000) == pytest.approx(law(3000), rel=0.05)


def test_one_slow_block_changes_little() -> None:
    blocks = noisy([law(n) for n in LENGTHS], 3, noise=0.01)
    calm = fit(LENGTHS, blocks).coefficients
    blocks[2][4] *= 10
    assert fit(LENGTHS, blocks).coefficients == pytest.approx(calm, rel=0.02)


def test_single_blocks_take_the_noise_from_the_residuals() -> None:
    fits = [measured(seed, blocks=1) for seed in range(100)]
    covered = [sum(holds(f.intervals[term], LAW[term]) for f in fits) for term in range(3)]
    covered.append(sum(holds(f.exponent_interval, EXPONENT) for f in fits))
    assert min(covered) >= binom.ppf(0.001, 100, 0.95), covered
    assert all(math.isfinite(interval.high) for f in fits for interval in f.intervals)


def test_a_length_with_few_blocks_borrows_noise() -> None:
    ratios = []
    for seed in range(9):
        blocks = noisy([law(n) for n in LENGTHS], seed)
        full = fit(LENGTHS, blocks).intervals[2]
        lone = fit(LENGTHS, [*blocks[:-1], blocks[-1][:1]]).intervals[2]
        ratios.append((lone.high - lone.low) / (full.high - full.low))
    assert np.median(ratios) > 1.2  # without borrowed noise that length would be certain and the ratio below 1


def test_two_blocks_count_as_noisy_as_two_draws_are() -> None:
    # Two values d from their middle have the standard deviation d·√2. The mean of two draws from ±d·√2 is an extreme in
    # a quarter of the cases, the slope between two such ends in a sixteenth: its interval ends at the extremes.
    found = fit((10, 100, 1000), [[law(n) * math.exp(sign * 0.01) for sign in (-1, 1)] for n in (10, 100, 1000)])
    extreme = 2 * 0.01 * math.sqrt(2) / math.log(100)
    assert found.exponent_interval.high - found.exponent == pytest.approx(extreme, rel=1e-3)
    assert found.exponent - found.exponent_interval.low == pytest.approx(extreme, rel=1e-3)


def test_steps_that_the_law_cannot_follow_widen_the_intervals() -> None:
    steps = (1.0, 1.1, 0.93, 1.06, 0.94, 1.08, 1.0)
    times = [law(n) for n in LENGTHS]
    smooth = fit(LENGTHS, noisy(times, 6, noise=0.001))
    stepped = fit(LENGTHS, noisy([t * step for t, step in zip(times, steps, strict=True)], 6, noise=0.001))
    for term in range(3):
        narrow, wide = smooth.intervals[term], stepped.intervals[term]
        assert wide.high - wide.low > 10 * (narrow.high - narrow.low)
        assert holds(wide, LAW[term])


def test_nothing_to_judge_the_noise_by() -> None:
    found = fit((128, 1024, 8192), [[law(n)] for n in (128, 1024, 8192)])
    unknown = Interval(0.0, math.inf)
    assert found.coefficients == pytest.approx(LAW)
    assert {*found.intervals, found.exponent_interval} == {unknown}
    assert found.crossover is None


def test_a_crossover_out_of_sight_is_not_named() -> None:
    linear = fit(LENGTHS, noisy([law(n, (2e5, 1e3, 0)) for n in LENGTHS], 7))
    assert linear.crossover is None
    assert linear.intervals[2].low == 0
    assert linear.crossover_interval
    assert (linear.crossover_interval.low > 8192, linear.crossover_interval.high) == (True, math.inf)
    quadratic = fit(LENGTHS, noisy([law(n, (2e5, 0, 1.0)) for n in LENGTHS], 7))
    assert quadratic.crossover is None
    assert quadratic.crossover_interval is not None
    assert (quadratic.crossover_interval.low, quadratic.crossover_interval.high < 1000) == (0, True)
    constant = fit(LENGTHS, [[5.0] * 5 for _ in LENGTHS])
    assert (constant.crossover, constant.crossover_interval) == (None, None)


@pytest.mark.parametrize("n", [10, 500, 1e5])
def test_the_local_exponent_is_the_derivative(n: float) -> None:
    found = measured(8)
    step = 1e-4
    numeric = (math.log(found.predict(n * (1 + step))) - math.log(found.predict(n * (1 - step)))) / (2 * step)
    assert found.local_exponent(n) == pytest.approx(numeric, rel=1e-5)


def test_slope_is_that_of_a_straight_line() -> None:
    values = [law(n) for n in LENGTHS]
    assert slope(LENGTHS, values) == pytest.approx(np.polyfit(np.log(LENGTHS), np.log(values), 1)[0])
    assert slope((2, 4, 8), (3 * 2**1.5, 3 * 4**1.5, 3 * 8**1.5)) == pytest.approx(1.5)


WINDOW = 1024
WORK = {
    "n": [1e3 * n for n in LENGTHS],
    "n·W": [10.0 * n * min(n, WINDOW) for n in LENGTHS],
    "n²": [10.0 * n * n for n in LENGTHS],
}


def test_a_window_has_no_quadratic_term_beyond_itself() -> None:
    lengths = LENGTHS[3:]
    window = fit(lengths, noisy(WORK["n·W"][3:], 10))
    full = fit(lengths, noisy(WORK["n²"][3:], 10))
    assert window.intervals[2].high < full.intervals[2].low / 20
    assert window.exponent == pytest.approx(1.0, abs=0.05)
    assert full.exponent == pytest.approx(2.0, abs=0.05)


def test_the_exponent_of_a_law_that_does_not_fit_is_still_sure() -> None:
    found = fit(LENGTHS, noisy(WORK["n·W"], 15, noise=0.001))
    assert found.residual > 0.05
    assert found.exponent_interval.high - found.exponent_interval.low < 0.01
    assert found.exponent == pytest.approx(np.polyfit(np.log(LENGTHS), np.log(WORK["n·W"]), 1)[0], abs=0.01)


def test_the_seed_decides() -> None:
    blocks = noisy([law(n) for n in LENGTHS], 14)
    assert fit(LENGTHS, blocks, seed=1) == fit(LENGTHS, blocks, seed=1) != fit(LENGTHS, blocks, seed=2)


@pytest.mark.parametrize(
    ("lengths", "blocks", "message"),
    [
        ((), [], "got 0"),
        ((128, 256, 256), [[1.0]] * 3, "got 2"),
        ((1, 2, 3), [[1.0]] * 2, "3 lengths but blocks for 2"),
        ((0, 1, 2), [[1.0]] * 3, "got 0"),
        ((1, 2, 3), [[1.0], [], [1.0]], "length 2"),
        ((1, 2, 3), [[1.0], [1.0], [1.0, math.nan]], "length 3"),
    ],
)
def test_fit_refuses(lengths: tuple[int, ...], blocks: Blocks, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(lengths, blocks)


@pytest.mark.parametrize(
    ("lengths", "values"), [((1, 1), (1.0, 2.0)), ((1, 2), (1.0,)), ((1, 2), (1.0, 0.0)), ((0, 2), (1.0, 2.0))]
)
def test_slope_refuses(lengths: tuple[int, ...], values: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="slope"):
        slope(lengths, values)
