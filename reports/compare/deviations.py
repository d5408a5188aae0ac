"""How far each pair of measurements lies apart, and how far that is from the other runtimes of its length."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from ...bench.records import Case
from ...bench.timing import log_error
from .match import Pair
from .noise import Deviation


def deviation(pair: Pair) -> Deviation:
    """ln(head time / base time), with the noise within the runs."""
    if pair.together:
        return Deviation(math.log(median(pair.ratios)), log_error(pair.ratios))
    before, after = pair.base.block_medians_ns, pair.head.block_medians_ns
    return Deviation(math.log(median(after) / median(before)), math.hypot(log_error(before), log_error(after)))


def contrasts(pairs: Sequence[Pair], found: Sequence[Deviation]) -> list[list[Deviation]]:
    """What scatters between runs, in groups that should change alike.

    Where a length has several runtimes it is the difference to the first of them, which no state of the machine is in;
    the square root of 2 makes that as large as the noise of one of them. Runs that alternated share the machine.
    """
    firsts: dict[Case, Deviation] = {}
    kept: list[tuple[Pair, Deviation]] = []
    runtimes = Counter(pair.base.case.point for pair in pairs)
    for pair, d in zip(pairs, found, strict=True):
        point = pair.base.case.point
        first = firsts.setdefault(point, d)
        if pair.together or runtimes[point] == 1:
            kept.append((pair, d))
        elif first is not d:
            kept.append((pair, _contrast(first, d)))
    return alike(kept)


def alike(found: Iterable[tuple[Pair, Deviation]]) -> list[list[Deviation]]:
    """In groups that should change alike: those of one runtime in one phase."""
    groups: dict[tuple[str, str], list[Deviation]] = {}
    for pair, d in found:
        groups.setdefault((pair.base.case.runtime, pair.base.case.phase), []).append(d)
    return list(groups.values())


def _contrast(first: Deviation, other: Deviation) -> Deviation:
    return Deviation((other.value - first.value) / math.sqrt(2), math.hypot(first.error, other.error) / math.sqrt(2))
