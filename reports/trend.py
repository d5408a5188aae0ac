"""How the time of a group grows, at its long end above all, and what that says about lengths nobody measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..bench.complexity import Fit
from ..bench.extrapolate import Estimate, largest, predict
from ..bench.records import Measurement
from ..bench.timing import Interval, median_interval
from .document import Tone
from .format import duration, exponent, number
from .race import places
from .series import GROWTH_TONES, Group, growth

TARGET = 32_768  # the length that people ask about
BUDGET_NS = 1e9
UNKNOWN = "cannot tell"
_NEAR = 0.25  # exponents that are no further apart agree
_SURE, _ROUGH = 3.0, 30.0  # factors between the ends of an interval up to which it is an answer, or a rough one
_FLAT, _BELOW, _ABOVE = 0.15, 0.85, 1.15  # exponents up to which a time is flat, and around 1 where it is linear


@dataclass(frozen=True)
class End:
    """The slope of log time over log n between `low` and `high`, the longest n, and that of theory."""

    low: int
    high: int
    slope: float
    interval: Interval
    predicted: float | None

    @property
    def word(self) -> str:
        """How the time grows there, as an adverb."""
        return _adverb(self.interval)

    @property
    def tone(self) -> Tone:
        """Whether that is what theory says: good, bad, or neither for sure."""
        if self.predicted is None:
            return "plain"
        if abs(self.slope - self.predicted) <= _NEAR:
            return "good"
        apart = self.interval.low > self.predicted + _NEAR or self.interval.high < self.predicted - _NEAR
        return "bad" if apart else "unsure"


def _adverb(interval: Interval) -> str:
    if interval.high < _FLAT:
        return "hardly at all"
    if interval.high < _BELOW:
        return "less than linearly"
    if interval.low > _ABOVE:
        return "more than linearly"
    return "linearly" if interval.low >= _BELOW and interval.high <= _ABOVE else UNKNOWN


def leader(group: Group) -> str | None:
    """The fastest runtime at the longest n; None when no time may be shown."""
    found = places(group)
    return found[-1].first if found else None


def end(line: Sequence[Measurement]) -> End | None:
    """The slope over the last doubling of n; None without two lengths that are a factor of two apart.

    The interval of the difference of two logarithms comes from their own intervals by the method of variance estimates
    recovery (Zou and Donner, 2008, Statistics in Medicine 27:1693).
    """
    if not line:
        return None
    last = line[-1]
    first = next((m for m in reversed(line) if 0 < 2 * m.case.length <= last.case.length), None)
    if first is None or not first.median_ns or not last.median_ns:
        return None
    width = math.log(last.case.length / first.case.length)
    slope = math.log(last.median_ns / first.median_ns) / width
    before, after = median_interval(first.block_medians_ns), median_interval(last.block_medians_ns)
    down = math.hypot(_log(last.median_ns, after.low), _log(before.high, first.median_ns)) / width
    up = math.hypot(_log(after.high, last.median_ns), _log(first.median_ns, before.low)) / width
    predicted = math.log(last.work / first.work) / width if last.work and first.work else None
    return End(first.case.length, last.case.length, slope, Interval(slope - down, slope + up), predicted)


def _log(high: float, low: float) -> float:
    return math.log(high / low) if low > 0 and math.isfinite(high) else math.inf


def grown(group: Group, runtime: str) -> tuple[str, str, Tone]:
    """How the time of one line grows: in words, the exponents that they rest on, and whether theory agrees."""
    found, law = end(group.curve(runtime)), growth(group, runtime)
    if found is None:
        return UNKNOWN, f"no two lengths on {runtime} are a factor of two apart", "unsure"
    slopes = [f"from {found.low} to {found.high} as {_power(found.slope, found.interval, found.predicted)}"]
    if found.predicted is not None:
        slopes[0] += f" ({_adverb(Interval(found.predicted, found.predicted))})"
    if law is not None:
        slopes.append(f"overall as {_power(law.fit.exponent, law.fit.exponent_interval, law.predicted)}")
    detail = f"{'; '.join(slopes)}; on {runtime}"
    if found.word != UNKNOWN:
        return found.word, detail, found.tone
    words = {"agrees": "as theory says", "disagrees": "not as theory says"}
    word = law.word if law else ""
    return words.get(word, UNKNOWN), detail, GROWTH_TONES.get(word, "unsure")


def _power(value: float, interval: Interval, predicted: float | None) -> str:
    theory = "" if predicted is None else f", theory n^{exponent(predicted)}"
    return f"n^{exponent(value, interval)}{theory}"


def ahead(group: Group, runtime: str, limit: int | None) -> tuple[str, str]:
    """What the law says about `TARGET` tokens and about a second; `limit` is where the model's positions end."""
    if limit is not None and limit < TARGET:
        return "not possible", f"this model has {limit:,} positions"
    law = growth(group, runtime)
    if law is None:
        return UNKNOWN, "too few lengths were measured to fit a law"
    head, detail = _time(law.fit)
    reach = "" if group.phase == "step" else _reach(law.fit)
    return head, f"{detail}, on {runtime}{reach}"


def _time(fit: Fit) -> tuple[str, str]:
    estimate = predict(fit, TARGET)
    ends = f"{duration(estimate.low)} to {duration(estimate.high)}"
    far = TARGET / max(fit.lengths)
    reach = f"{number(far, 2)} times the longest measured n" if far > 1 else "within the measured range"
    if _spread(estimate) <= _SURE:
        return f"about {duration(estimate.mid)}", f"{ends}; {reach}"
    if _spread(estimate) <= _ROUGH:
        return f"roughly {duration(estimate.mid)}", f"anything from {ends} fits the data; {reach}"
    return UNKNOWN, f"the data leave {ends}; {reach}"


def _reach(fit: Fit) -> str:
    estimate = largest(fit, BUDGET_NS)
    if _spread(estimate) > _SURE or estimate.mid < 1:
        return ""
    return f"; one second is enough for {number(estimate.mid)} tokens ({number(estimate.low)}–{number(estimate.high)})"


def _spread(estimate: Estimate) -> float:
    return estimate.high / estimate.low if estimate.low > 0 else math.inf
