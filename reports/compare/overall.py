"""The change of each runtime as a whole: the geometric mean over its cases, which sees what no single case can.

Cases of one exported model were timed in one process and share its luck, so the exported model is the unit that is
averaged over, and not the case.

Share of 300 simulated pairs of runs of the same code in which one of two runtimes was called (0-5 % noise between runs):
0.000-0.007 with 21 models, 0.000-0.070 with 3. A runtime slowed by 5 %, at 0.5, 1, 2 and 5 % between runs: with 21 models
called in 1.00, 1.00, 1.00 and 0.89, with 3 in 1.00, 1.00, 0.94 and 0.29.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy.stats import false_discovery_control

from ...bench.timing import Interval
from .change import LEVEL, Change, Word, word
from .noise import Deviation, Noise, left, p_value, ratio_interval, whole


@dataclass(frozen=True)
class Overall:
    """One runtime over all its cases: `ratio` is head time / base time; `p` is corrected over the runtimes."""

    runtime: str
    cases: tuple[Change, ...]
    ratio: float
    interval: Interval
    p: float
    word: Word

    def count(self, wanted: Word) -> int:
        """How many of its cases have this word."""
        return sum(change.word == wanted for change in self.cases)


def overall(found: Sequence[Change], noise: Noise) -> tuple[Overall, ...]:
    """Every runtime that has a case, in the order of the cases."""
    names = dict.fromkeys(change.case.runtime for change in found)
    members = [tuple(change for change in found if change.case.runtime == name) for name in names]
    if not members:
        return ()
    means = [_mean(cases, noise) for cases in members]
    tests = false_discovery_control([p_value(left(mean), noise.freedom) for mean in means])
    return tuple(_overall(cases, mean, float(p), noise) for cases, mean, p in zip(members, means, tests, strict=True))


def _mean(cases: Sequence[Change], noise: Noise) -> Deviation:
    """The mean over exported models of the mean over their cases, with the error that their processes leave."""
    models: dict[tuple[object, ...], list[Change]] = {}
    for change in cases:
        case = change.case
        models.setdefault((case.model, case.size, case.phase, case.dtype, case.batch), []).append(change)
    value, machine = (
        fmean(fmean(getattr(change.deviation, part) for change in members) for members in models.values())
        for part in ("value", "machine")
    )
    squares = [fmean(whole(change.deviation, noise).error ** 2 for change in members) for members in models.values()]
    return Deviation(value, math.sqrt(sum(squares)) / len(models), machine)


def _overall(cases: tuple[Change, ...], mean: Deviation, p: float, noise: Noise) -> Overall:
    interval = ratio_interval(mean, noise.freedom)
    return Overall(cases[0].case.runtime, cases, math.exp(mean.value), interval, p, word(interval, p < LEVEL))
