"""How far two runs of the same code lie apart: within each run, between the two, and through the machine.

Two runs are not paired in time. Their blocks show how well each run knows its own median, and nothing of what stays the
same inside a run and changes with the next: where memory came to lie, which neighbours the machine had, how far the
clock went up. That part is as large as the effects one looks for (Mytkowicz et al. 2009, "Producing wrong data without
doing anything obviously wrong!"; Kalibera and Jones 2013, "Rigorous benchmarking in reasonable time", on the levels of
noise), and intervals from the blocks alone would call unchanged cases changed.

So the noise is calibrated by what should be equal. Most cases of one runtime in one phase change alike, by nothing or
by what was done to that runtime; how far they scatter, in units of their own standard errors, is the factor by which
those errors are too small or too large (the ratio of Birge 1932, Physical Review 40:207). It is taken from the
differences between such cases, so that the change of a whole runtime is not counted as noise, and from their median, so
that a quarter of the cases may have changed by themselves. Few cases say little: the factor is pooled with 1, and 1 %
between runs, as if those were known from four cases more (the moderated variance of Smyth 2004,
doi:10.2202/1544-6115.1027).

What the machine did to all runtimes at once is no such scatter: it is taken out before, see machine.py.

All numbers are natural logarithms of times or of ratios of times, so 0.01 is one per cent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from ...bench.timing import Interval

USUAL, PRIOR = 0.01, 4.0  # what two runs differ by before one has looked, and how many cases that is worth
TAILS = 4.0  # degrees of freedom of a single case at most: one that a neighbour's work hit lies far out
EFFICIENCY = 0.5  # of the median of differences, against the sum of squares
NORMAL_MEDIAN = NormalDist().inv_cdf(0.75)  # the median of the absolute value of a standard normal number


@dataclass(frozen=True)
class Noise:
    """Between two runs: the factor of all standard errors, and its degrees of freedom."""

    factor: float
    freedom: float

    @property
    def single(self) -> float:
        """The degrees of freedom for a single case, whose noise has long tails; a mean over cases has not."""
        return min(self.freedom, TAILS)


@dataclass(frozen=True)
class Deviation:
    """ln(head time / base time) of one case, and the standard error that the blocks of both runs give it.

    `machine` is the part of the value that may be the machine's, and `unsure` the standard error of that part.
    """

    value: float
    error: float
    machine: float = 0.0
    unsure: float = 0.0

    @property
    def usual(self) -> float:
        """The standard error with what two runs usually differ by."""
        return math.hypot(self.error, USUAL)


def estimate(groups: Iterable[Sequence[Deviation]]) -> Noise:
    """The noise between two runs, from the cases of each group that should change alike."""
    known = [[d for d in group if math.isfinite(d.error)] for group in groups]
    scatter = np.concatenate([np.empty(0), *map(_differences, known)])
    freedom = EFFICIENCY * sum(len(group) - 1 for group in known if group)
    square = float(np.median(scatter) / NORMAL_MEDIAN) ** 2 if len(scatter) else 0.0
    pooled = (PRIOR + freedom * square) / (PRIOR + freedom)
    return Noise(math.sqrt(pooled), PRIOR + freedom)


def _differences(group: Sequence[Deviation]) -> NDArray[np.float64]:
    """|difference| of every two cases of a group over its standard error."""
    values, errors = np.array([d.value for d in group]), np.array([d.usual for d in group])
    first, second = np.triu_indices(len(group), 1)
    scatter: NDArray[np.float64] = np.abs(values[first] - values[second]) / np.hypot(errors[first], errors[second])
    return scatter


def whole(deviation: Deviation, noise: Noise) -> Deviation:
    """With the noise between runs in its error."""
    return replace(deviation, error=noise.factor * deviation.usual)


def left(deviation: Deviation) -> Deviation:
    """What is left of a change when the machine's part is taken from it, as far as that is known."""
    return Deviation(deviation.value - deviation.machine, math.hypot(deviation.error, deviation.unsure))


def p_value(deviation: Deviation, freedom: float) -> float:
    """Two-sided, for a deviation with its whole error against no change."""
    return 2 * float(student.sf(abs(deviation.value) / deviation.error, freedom))


def ratio_interval(deviation: Deviation, freedom: float) -> Interval:
    """The 95 % interval of a ratio, from its whole error: it holds the change with the machine's part and without."""
    if math.isinf(deviation.error):
        return Interval(0.0, math.inf)
    rest = left(deviation)
    reach = float(student.ppf(0.975, freedom)) * rest.error
    low, high = sorted((deviation.value, rest.value))
    return Interval(math.exp(low - reach), math.exp(high + reach))
