"""What a larger batch costs: a call of more rows against one of fewer, at the same n on the same runtime."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..bench.records import Measurement
from ..bench.timing import Interval, median_interval
from .document import Tone
from .format import duration, ratio
from .series import Group


@dataclass(frozen=True)
class Gain:
    """Two measurements that differ in their rows alone; `cost` is the ratio of their times, with its interval.

    `rate` is what that means for the tokens per second.
    """

    group: Group
    base: Measurement
    more: Measurement
    cost: float
    interval: Interval

    @property
    def rate(self) -> float:
        """Tokens per second over those of the smaller batch."""
        return self._rows / self.cost

    @property
    def rate_interval(self) -> Interval:
        """Its interval."""
        return Interval(self._rows / self.interval.high, self._rows / self.interval.low)

    @property
    def tone(self) -> Tone:
        """Whether the larger batch brings more tokens per second, fewer, or neither for sure."""
        if self.rate_interval.low > 1:
            return "good"
        return "bad" if self.rate_interval.high < 1 else "unsure"

    @property
    def _rows(self) -> float:
        return self.more.case.batch / self.base.case.batch


def gains(found: Sequence[Group]) -> tuple[Gain, ...]:
    """Each batch against the smallest that has a time at the same n on the same runtime, in the order of the groups."""
    smallest: dict[tuple[object, ...], Measurement] = {}
    made = []
    for group in sorted(found, key=lambda group: group.batch):
        for runtime in group.lines:
            for m in group.shown(runtime):
                base = smallest.setdefault((_alike(group), runtime, m.case.seq, m.case.past), m)
                if base is not m and _bounded(base) and _bounded(m):
                    made.append(_gain(group, base, m))
    return tuple(sorted(made, key=lambda gain: gain.group.index))


def largest(found: Sequence[Group]) -> tuple[Gain, ...]:
    """For each model, phase and precision the largest batch at the longest n, on the fastest runtime there."""
    best: dict[tuple[object, ...], Gain] = {}
    for gain in gains(found):
        best[_alike(gain.group)] = min(gain, best.get(_alike(gain.group), gain), key=_rank)
    return tuple(best.values())


def sentence(gain: Gain) -> str:
    """As in: at n = 128 a batch of 8 costs 6.10× (5.80–6.40) as much as one sequence: 12 ms against 2 ms; on torch."""
    less, more = gain.base.case, gain.more.case
    rows = "one sequence" if less.batch == 1 else f"{less.batch} sequences"
    times = f"{duration(gain.more.median_ns or 0.0)} against {duration(gain.base.median_ns or 0.0)}"
    cost = ratio(gain.cost, gain.interval)
    return f"at n = {more.length} a batch of {more.batch} costs {cost} as much as {rows}: {times}; on {more.runtime}"


def _alike(group: Group) -> tuple[object, ...]:
    """What is the same in two groups that differ in their batch alone."""
    return group.name, group.phase, group.dtype, group.label.removesuffix(f", batch {group.batch}")


def _rank(gain: Gain) -> tuple[float, ...]:
    return -gain.more.case.batch, -gain.more.case.length, gain.more.median_ns or 0.0


def _gain(group: Group, base: Measurement, more: Measurement) -> Gain:
    """The interval of a ratio of medians that do not pair in time, from their own intervals by the method of variance
    estimates recovery (Zou and Donner, 2008, Statistics in Medicine 27:1693), with what two processes differ by."""
    cost = (more.median_ns or 0.0) / (base.median_ns or 1.0)
    less, much = median_interval(base.block_medians_ns), median_interval(more.block_medians_ns)
    apart = group.spread.apart if group.spread else 0.0
    down = math.hypot(_log(more.median_ns, much.low), _log(less.high, base.median_ns), apart)
    up = math.hypot(_log(much.high, more.median_ns), _log(base.median_ns, less.low), apart)
    return Gain(group, base, more, cost, Interval(cost * math.exp(-down), cost * math.exp(up)))


def _bounded(m: Measurement) -> bool:
    """Whether a time has an interval: a single block has none."""
    return len(m.block_medians_ns) > 1


def _log(high: float | None, low: float | None) -> float:
    return math.log(high / low) if high and low else math.inf
