"""How a time grows with n, and whether that is what theory says: one rule, for everything that a report shows.

Judged is the last doubling of n. That is the growth that goes on, and there the fixed costs of a call, which
operations and bytes know nothing of, weigh least. Held against it is the exponent of theory over the same lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .complexity import Fit, exponent, fit, slope
from .timing import Interval

TOLERANCE = 0.25  # of an exponent: nearer is near, since theory counts neither fixed costs nor caches
SEPARATE = 0.2  # by how much two predicted exponents must differ to be told apart
FEWEST, RANGE = 4, 4  # lengths of a line, and its longest n over its shortest, without which nothing is judged
FLAT, BELOW, ABOVE = 0.15, 0.85, 1.15  # exponents up to which a time is flat, and around 1 where it is linear

Word = Literal["agrees", "close", "disagrees", "range too small", "too noisy", "no prediction"]
Read = Literal["sparse", "dense", "neither", "too near", "too noisy"]


@dataclass(frozen=True)
class Growth:
    """The law of a line, and of its last doubling, from `low` to `high`, the slope of log time over log n.

    `theory` is the slope that theory expects there, None where it is not known; `fit.exponent` is that over all n.
    """

    fit: Fit
    low: int
    high: int
    exponent: float
    interval: Interval
    theory: float | None
    word: Word


def grow(lengths: Sequence[int], blocks: Sequence[Sequence[float]], work: Sequence[float] | None) -> Growth:
    """The growth of the times in `blocks`, in order of `lengths`; `work` is what theory says that each goes by.

    Raises:
        ValueError: fewer than three distinct lengths, or one without positive times.
    """
    law, start = fit(lengths, blocks), last_doubling(lengths)
    value, interval = exponent(lengths[start:], blocks[start:])
    theory = slope(lengths[start:], work[start:]) if work else None
    return Growth(
        fit=law,
        low=lengths[start],
        high=lengths[-1],
        exponent=value,
        interval=interval,
        theory=theory,
        word=judge(value, interval, theory, lengths),
    )


def last_doubling(lengths: Sequence[int]) -> int:
    """Where the last doubling begins in `lengths`, which are in order; at the first where none is twice another."""
    return max((i for i, n in enumerate(lengths) if 2 * n <= lengths[-1]), default=0)


def judge(exponent: float, interval: Interval, theory: float | None, lengths: Sequence[int]) -> Word:
    """The rule.

    "range too small": fewer than four lengths, or the longest less than four times the shortest. "too noisy": the
    interval is wider than two tolerances, or the exponent is off but its interval reaches into the tolerance. "agrees":
    theory lies within the interval and the tolerance; "close": within the tolerance alone; "disagrees": beyond both.
    """
    if theory is None:
        return "no prediction"
    if len(set(lengths)) < FEWEST or max(lengths) < RANGE * min(lengths):
        return "range too small"
    if interval.high - interval.low > 2 * TOLERANCE:
        return "too noisy"
    if abs(exponent - theory) <= TOLERANCE:
        return "agrees" if interval.low <= theory <= interval.high else "close"
    if interval.low <= theory + TOLERANCE and interval.high >= theory - TOLERANCE:
        return "too noisy"
    return "disagrees"


def adverb(interval: Interval) -> str | None:
    """How a time grows whose exponent lies in an interval; None where it may be anything."""
    if interval.high <= BELOW:
        return "hardly at all" if interval.high <= FLAT else "less than linearly"
    if interval.low >= ABOVE:
        return "more than linearly"
    if interval.low >= BELOW:
        return "linearly" if interval.high <= ABOVE else "at least linearly"
    return "at most linearly" if interval.high <= ABOVE else None


def told_apart(interval: Interval, sparse: float, dense: float) -> Read:
    """Which of two predicted exponents a measured one is that of: of what sparse attention computes, or of full.

    "neither": it is for sure below both by more than theory is trusted to. "too noisy": the interval is wider than two
    tolerances and than the two are apart, or has the middle between them in it.
    """
    if dense - sparse < SEPARATE:
        return "too near"
    if interval.high - interval.low > max(2 * TOLERANCE, dense - sparse):
        return "too noisy"
    if interval.high < sparse - TOLERANCE:
        return "neither"
    middle = (sparse + dense) / 2
    if interval.high < middle:
        return "sparse"
    return "dense" if interval.low > middle else "too noisy"
