"""Warm-up and blocks on a fake clock; intervals and comparisons on simulated noise."""

import ast
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from isorun.bench import timing
from isorun.bench.timing import Interval, block, compare, judge, log_error, median_interval, narrow_enough, warm_up

MS = 1_000_000
Noise = Callable[[np.random.Generator, int], np.ndarray]


def normal(rng: np.random.Generator, blocks: int) -> np.ndarray:
    return np.exp(0.02 * rng.standard_normal(blocks))


def skewed(rng: np.random.Generator, blocks: int) -> np.ndarray:
    return 1 + 0.03 * rng.exponential(size=blocks)


def interrupted(rng: np.random.Generator, blocks: int) -> np.ndarray:
    slow = rng.random(blocks) < 0.1
    return (1 + 0.01 * rng.standard_normal(blocks)) * np.where(slow, 1 + 0.5 * rng.random(blocks), 1)


MEDIANS: dict[Noise, float] = {normal: 1.0, skewed: 1 + 0.03 * math.log(2)}


class FakeCall:
    """A call that takes the given times in turn and then the last one for ever, with the clock that measures it."""

    def __init__(self, *durations_ns: int) -> None:
        self.durations_ns = durations_ns
        self.calls = 0
        self.now_ns = 0

    def __call__(self) -> None:
        self.now_ns += self.durations_ns[min(self.calls, len(self.durations_ns) - 1)]
        self.calls += 1

    def clock(self) -> int:
        return self.now_ns


def test_the_process_that_times_needs_only_the_standard_library() -> None:
    tree = ast.parse(Path(timing.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_warm_up_ends_when_two_windows_agree() -> None:
    call = FakeCall(100, 50, 20, 10)
    # Calls 3-5 (20, 10, 10) and 6-8 (10, 10, 10) are the first two windows of three with equal medians.
    assert warm_up(call, clock=call.clock) == 8
    assert call.calls == 8


@pytest.mark.parametrize(("agree", "calls"), [(0.05, 9), (0.2, 6)])
def test_warm_up_agrees_within_a_fraction(agree: float, calls: int) -> None:
    call = FakeCall(115, 115, 115, 100)
    # Windows of three: 115/100 at call 6, still 115/100 at call 7 (115, 115, 100), equal from call 8 (115, 100, 100).
    assert warm_up(call, clock=call.clock, agree=agree) == min(calls, 8)


def test_warm_up_gives_up_at_the_limits() -> None:
    restless = FakeCall(*(2**step for step in range(60, 0, -1)))
    assert warm_up(restless, clock=restless.clock, limit_s=1e12) == 30
    slow = FakeCall(*(900 * MS >> step for step in range(20)))
    assert warm_up(slow, clock=slow.clock, limit_s=1.5) == 3
    slower = FakeCall(5000 * MS)
    assert warm_up(slower, clock=slower.clock) == 1


def test_block_discards_the_cold_call_and_fills_its_time() -> None:
    call = FakeCall(9 * MS, 2 * MS, 3 * MS, 4 * MS, 5 * MS)
    assert block(call, seconds=0.010, clock=call.clock) == (2 * MS, 3 * MS, 4 * MS, 5 * MS)
    assert call.calls == 5


def test_block_discards_as_many_as_asked() -> None:
    call = FakeCall(9 * MS, 8 * MS, 2 * MS)
    assert block(call, seconds=0.010, discard=2, clock=call.clock) == (2 * MS,) * 5
    call = FakeCall(9 * MS, 2 * MS)
    assert block(call, seconds=0.010, discard=0, clock=call.clock) == (9 * MS, 2 * MS)


def test_block_keeps_a_first_call_that_fills_it() -> None:
    call = FakeCall(2000 * MS)
    assert block(call, seconds=0.5, discard=3, clock=call.clock) == (2000 * MS,)
    assert call.calls == 1


def test_block_makes_at_least_the_minimum() -> None:
    call = FakeCall(2000 * MS)
    assert block(call, seconds=0.5, minimum=3, clock=call.clock) == (2000 * MS,) * 3
    assert call.calls == 3


@pytest.mark.parametrize("count", [6, 7, 10, 15])
def test_interval_is_that_of_hettmansperger_and_sheather(count: int) -> None:
    depth = int(stats.binom.ppf(0.025, count, 0.5))  # the deepest pair that covers at least 95 %
    outer, inner = (1 - 2 * stats.binom.cdf(below, count, 0.5) for below in (depth - 1, depth))
    assert outer >= 0.95 > inner
    share = (outer - 0.95) / (outer - inner)
    weight = (count - depth) * share / (depth + (count - 2 * depth) * share)
    shuffled = np.random.default_rng(0).permutation(count)
    interval = median_interval([math.exp(rank) for rank in shuffled])  # the logarithms are 0, 1, 2, …
    assert math.log(interval.low) == pytest.approx(depth - 1 + weight)
    assert math.log(interval.high) == pytest.approx(count - depth - weight)


def test_five_blocks_get_at_least_their_range_and_the_t_interval() -> None:
    values = [100.0, 101.0, 102.0, 103.0, 104.0]
    low, high = stats.t.interval(0.95, 4, np.mean(np.log(values)), stats.sem(np.log(values)))
    interval = median_interval(values)
    assert interval.low == pytest.approx(min(100.0, math.exp(low)), rel=1e-5)
    assert interval.high == pytest.approx(max(104.0, math.exp(high)), rel=1e-5)


@pytest.mark.parametrize("noise", MEDIANS)
@pytest.mark.parametrize("count", [5, 7, 9, 15])
def test_interval_holds_the_median_in_95_percent(noise: Noise, count: int) -> None:
    rng = np.random.default_rng(count)
    intervals = [median_interval(noise(rng, count).tolist()) for _ in range(2000)]
    covered = np.mean([interval.low <= MEDIANS[noise] <= interval.high for interval in intervals])
    assert 0.935 <= covered <= 0.975  # 2000 runs: three standard errors are 0.015


def test_interval_of_one_block_is_unbounded() -> None:
    assert median_interval([7.0]) == Interval(0.0, math.inf)


def test_the_error_of_a_median_is_that_of_its_blocks() -> None:
    rng = np.random.default_rng(0)
    sets = np.exp(rng.normal(0, 0.02, (400, 9)))
    spread = float(np.std(np.log(np.median(sets, axis=1))))
    assert np.mean([log_error(list(row)) for row in sets]) == pytest.approx(spread, rel=0.2)
    assert log_error([1.0]) == math.inf


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [1.0, -1.0], [1.0, math.nan], [1.0, math.inf]])
def test_interval_refuses_what_is_no_time(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"block"):
        median_interval(values)


@pytest.mark.parametrize("noise", [normal, skewed, interrupted])
@pytest.mark.parametrize("count", [3, 5, 7, 15])
def test_equal_sources_are_seldom_told_apart(noise: Noise, count: int) -> None:
    rng = np.random.default_rng(100 + count)
    words = [compare(noise(rng, count).tolist(), noise(rng, count).tolist()).word for _ in range(2000)]
    assert words.count("faster") + words.count("slower") <= 0.065 * len(words)  # 5 % and three standard errors


@pytest.mark.parametrize("noise", [normal, skewed])
def test_ten_percent_is_found(noise: Noise) -> None:
    rng = np.random.default_rng(1)
    found = [compare((1.1 * noise(rng, 9)).tolist(), noise(rng, 9).tolist()) for _ in range(400)]
    assert [comparison.word for comparison in found].count("faster") >= 0.95 * len(found)
    covered = np.mean([comparison.interval.low <= 1.1 <= comparison.interval.high for comparison in found])
    assert covered >= 0.917  # 95 % less three standard errors
    slowed = [compare(noise(rng, 9).tolist(), (1.1 * noise(rng, 9)).tolist()).word for _ in range(400)]
    assert slowed.count("slower") >= 0.95 * len(slowed)


def test_pairs_cancel_what_slows_both() -> None:
    rng = np.random.default_rng(2)
    drift = np.linspace(1.0, 2.0, 9)
    base, other = 1.1 * drift * normal(rng, 9), drift * normal(rng, 9)
    assert compare(base.tolist(), other.tolist()).word == "faster"
    assert compare(base.tolist(), other[::-1].tolist()).word == "cannot tell"


WORDS = {
    "faster": [1.09, 1.10, 1.11, 1.10, 1.10, 1.09, 1.11],
    "slower": [0.91, 0.90, 0.89, 0.90, 0.91, 0.90, 0.89],
    "same": [0.99, 1.00, 1.01, 1.00, 1.02, 0.99, 1.01],
    "cannot tell": [0.80, 1.00, 1.20, 0.90, 1.10, 1.30, 0.85],
}


@pytest.mark.parametrize("word", WORDS)
def test_the_four_words(word: str) -> None:
    comparison = compare([200.0 * ratio for ratio in WORDS[word]], [200.0] * 7)
    assert comparison.word == word
    assert comparison.ratio == pytest.approx(np.median(WORDS[word]))
    assert comparison.interval.low <= comparison.ratio <= comparison.interval.high


@pytest.mark.parametrize("end", [0.8, 1.2])
def test_one_far_end_is_not_the_same(end: float) -> None:
    assert compare([1.0, 1.001, 0.999, 1.0, end, end, end], [1.0] * 7).word == "cannot tell"


def test_the_same_is_within_what_is_asked() -> None:
    base, other = [100 * ratio for ratio in WORDS["same"]], [100.0] * 7
    assert compare(base, other, within=0.001).word == "cannot tell"
    assert compare(base, other, within=0.001).within == 0.001


def test_exchanging_the_runtimes_inverts_the_ratio() -> None:
    rng = np.random.default_rng(3)
    first, second = normal(rng, 8).tolist(), normal(rng, 8).tolist()
    there, back = compare(first, second), compare(second, first)
    assert there.ratio * back.ratio == pytest.approx(1, abs=1e-12)
    assert there.interval.low * back.interval.high == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("apart", [0.0, 0.01, 0.2])
def test_what_processes_differ_by_joins_the_interval_as_an_independent_error(apart: float) -> None:
    base, other = [100 * ratio for ratio in WORDS["faster"]], [100.0] * 7
    bare, held = compare(base, other), compare(base, other, apart=apart)
    assert held.ratio == bare.ratio
    for before, after in ((bare.interval.low, held.interval.low), (bare.interval.high, held.interval.high)):
        assert math.log(after / held.ratio) ** 2 == pytest.approx(math.log(before / bare.ratio) ** 2 + apart**2)
    assert held.word == ("cannot tell" if apart == 0.2 else "faster")


def test_ratios_judged_by_themselves_have_the_interval_of_their_median() -> None:
    ratios = [1.09, 1.12, 1.10, 1.11, 1.08]
    found, interval = judge(ratios), median_interval(ratios)
    assert found.ratio == pytest.approx(1.10)
    assert found.interval.low == pytest.approx(interval.low)
    assert found.interval.high == pytest.approx(interval.high)
    wider = judge(ratios, wider=2.0)
    assert math.log(wider.interval.high / 1.1) == pytest.approx(2 * math.log(interval.high / 1.1))


def test_blocks_without_a_partner_are_left_out() -> None:
    base = [*WORDS["faster"], 50.0, 60.0]
    assert compare(base, [1.0] * 7) == compare(WORDS["faster"], [1.0] * 7)


@pytest.mark.parametrize("pairs", [0, 1, 2])
def test_two_pairs_cannot_tell(pairs: int) -> None:
    comparison = compare([3.0] * pairs, [1.0] * 5)
    assert (comparison.word, comparison.interval) == ("cannot tell", Interval(0.0, math.inf))
    assert math.isnan(comparison.ratio) if pairs == 0 else comparison.ratio == pytest.approx(3.0)


def test_comparison_refuses_what_is_no_time() -> None:
    with pytest.raises(ValueError, match=r"positive"):
        compare([1.0, 1.0, 1.0], [1.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("values", "relative", "enough"),
    [
        ([100.0, 100.0, 100.0, 100.0], 0.02, False),
        ([100.0, 100.5, 99.5, 100.2, 99.8], 0.02, True),
        ([100.0, 100.5, 99.5, 100.2, 99.8], 0.002, False),
        ([100.0, 120.0, 90.0, 110.0, 95.0], 0.02, False),
        ([100.0, 100.5, 99.5, 100.2, 99.8, 100.1, 99.9, 100.0, 150.0], 0.02, True),
    ],
)
def test_narrow_enough_needs_five_blocks_and_a_narrow_interval(
    values: Sequence[float], relative: float, enough: bool
) -> None:
    assert narrow_enough(values, relative=relative) is enough
