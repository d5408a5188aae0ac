"""How far each pair of measurements lies apart, and how far that is from the other runtimes of its length."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median

from ...bench.records import Case
from ...bench.timing import log_error
from .machine import point
from .match import Pair
from .noise import Deviation


def deviation(pair: Pair) -> Deviation:
    """ln(head time / base time), with the noise within the runs."""
    before, after = pair.base.block_medians_ns, pair.head.block_medians_ns
    if pair.together:
        ratios = [new / old for new, old in zip(after, before, strict=False)]
        return Deviation(math.log(median(ratios)), log_error(ratios))
    return Deviation(math.log(median(after) / median(before)), math.hypot(log_error(before), log_error(after)))


def contrasts(pairs: Sequence[Pair], found: Sequence[Deviation]) -> list[list[Deviation]]:
    """What scatters between runs, in groups that should change alike: those of one runtime in one phase.

    Where a length has several runtimes it is the difference to the first of them, which no state of the machine is in;
    the square root of 2 makes that as large as the noise of one of them. Runs that alternated share the machine.
    """
    firsts: dict[Case, Deviation] = {}
    groups: dict[tuple[str, str], list[Deviation]] = {}
    runtimes = Counter(point(pair.base.case) for pair in pairs)
    for pair, d in zip(pairs, found, strict=True):
        case = pair.base.case
        first = firsts.setdefault(point(case), d)
        if pair.together or runtimes[point(case)] == 1:
            groups.setdefault((case.runtime, case.phase), []).append(d)
        elif first is not d:
            groups.setdefault((case.runtime, case.phase), []).append(_contrast(first, d))
    return list(groups.values())


def _contrast(first: Deviation, other: Deviation) -> Deviation:
    return Deviation((other.value - first.value) / math.sqrt(2), math.hypot(first.error, other.error) / math.sqrt(2))
