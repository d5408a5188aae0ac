"""One case over many runs: its medians, and the steps between them that noise does not explain.

A step is the split of the runs, in the order given, whose two sides differ most against the noise between runs: the
likelihood-ratio test of a shift at an unknown place (Hinkley 1970, Biometrika 57:1), its p-value multiplied by the
number of places (Bonferroni) and corrected over all cases (Benjamini and Hochberg). Both sides are then searched again
(binary segmentation, Scott and Knott 1974, Biometrics 30:507). The noise is that of noise.py, taken from every two
neighbouring runs together; the variance of one run is half of that between two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from scipy.stats import false_discovery_control

from ...bench.records import Case, Measurement, Run
from ...bench.timing import Interval, log_error
from .change import LEVEL
from .deviations import alike, deviation
from .match import cases, match, untold
from .noise import USUAL, Deviation, Noise, estimate, p_value, ratio_interval


@dataclass(frozen=True)
class Level:
    """One run of a case: its number in the order given, ln(median), and the standard error of that between runs."""

    run: int
    value: float
    error: float


@dataclass(frozen=True)
class Step:
    """From run `at` on (counted from 0), times are `ratio` times what they were since the step before."""

    at: int
    ratio: float
    interval: Interval


@dataclass(frozen=True)
class Trend:
    """A case in all runs: nanoseconds, or None where a run has no time to show, and the steps in order."""

    case: Case
    medians_ns: tuple[float | None, ...]
    steps: tuple[Step, ...]


def trends(runs: Sequence[Run]) -> tuple[Trend, ...]:
    """Every case that at least three of the runs have timed."""
    noise = _noise(runs)
    both = [(run, cases(run)) for run in runs]
    timed = {
        case: [table.get(case) if untold(run, table.get(case)) is None else None for run, table in both]
        for case in dict.fromkeys(case for _, table in both for case in table)
    }
    lines = {case: line for case, line in timed.items() if sum(m is not None for m in line) >= 3}
    if not lines:
        return ()
    levels = [tuple(_levels(line, noise)) for line in lines.values()]
    tests = false_discovery_control([min(1.0, _split(line, noise)[1]) for line in levels])
    return tuple(
        Trend(case, tuple(m.median_ns if m else None for m in line), tuple(_steps(found, noise)) if p < LEVEL else ())
        for (case, line), found, p in zip(lines.items(), levels, tests, strict=True)
    )


def _noise(runs: Sequence[Run]) -> Noise:
    """What the machine did to a run is noise here."""
    groups: list[list[Deviation]] = []
    for before, after in pairwise(runs):
        groups += alike((pair, deviation(pair)) for pair in match(before, after).pairs)
    return estimate(groups)


def _levels(line: Sequence[Measurement | None], noise: Noise) -> Iterator[Level]:
    for number, m in enumerate(line):
        if m is not None:
            error = noise.factor * math.hypot(log_error(m.block_medians_ns), USUAL / math.sqrt(2))
            yield Level(number, math.log(median(m.block_medians_ns)), error)


def _steps(levels: Sequence[Level], noise: Noise) -> list[Step]:
    """The steps in a line whose first split is known to be one."""
    places = sorted(_places(levels, noise, 0))
    bounds = [0, *places, len(levels)]
    sides = [levels[low:high] for low, high in pairwise(bounds)]
    return [_step(before, after, noise) for before, after in pairwise(sides)]


def _places(levels: Sequence[Level], noise: Noise, start: int) -> Iterator[int]:
    at, p = _split(levels, noise)
    if p < LEVEL:
        yield start + at
        yield from _places(levels[:at], noise, start)
        yield from _places(levels[at:], noise, start + at)


def _split(levels: Sequence[Level], noise: Noise) -> tuple[int, float]:
    """The place that divides the levels best, and its p-value for having looked at all places."""
    tests = [(p_value(_shift(levels[:at], levels[at:]), noise.single), at) for at in range(1, len(levels))]
    if not tests:
        return 0, 1.0
    p, at = min(tests)
    return at, p * len(tests)


def _shift(before: Sequence[Level], after: Sequence[Level]) -> Deviation:
    (low, first), (high, second) = _mean(before), _mean(after)
    return Deviation(high - low, math.hypot(first, second))


def _mean(levels: Sequence[Level]) -> tuple[float, float]:
    """The mean weighted by precision, and its standard error; a run with a single block has no weight."""
    weights = [1 / level.error**2 for level in levels]
    total = sum(weights)
    if not total:
        return 0.0, math.inf
    return sum(weight * level.value for weight, level in zip(weights, levels, strict=True)) / total, total**-0.5


def _step(before: Sequence[Level], after: Sequence[Level], noise: Noise) -> Step:
    shift = _shift(before, after)
    return Step(after[0].run, math.exp(shift.value), ratio_interval(shift, noise.single))
