"""What the measured times say about lengths that nobody measured, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..bench.complexity import TERMS, Fit, fit
from ..bench.extrapolate import Estimate, largest, predict
from ..bench.records import Measurement, Run
from .exports import positions, whole
from .format import duration, memory, number
from .series import Group, growth
from .sparse import reading
from .trend import UNKNOWN

TARGET = 32_768  # the length that people ask about
BUDGET_NS = 1e9
# Factors between the ends of an interval up to which it is an answer, a rough one, or worth its upper end.
SURE, _ROUGH, _ANY = 3.0, 30.0, 1000.0
_STRAIGHT = 2  # terms of a straight line
_OFF = 0.01  # of operations: nearer to a straight line is on it


def law_ahead(run: Run, group: Group, runtime: str) -> Fit | None:
    """The law to go beyond the measured lengths by; None where they are as few as its terms, since a law through all of
    them says nothing of how far times lie from it: of 260 such intervals that were put to the test 177 held
    (tests/benchmarks/beyond.py).

    That is the fitted one, except where attention that reads part of the keys was measured to be linear. Up to the
    lengths at which keys are left out its work grows as a square, and beyond them as a straight line; a square fitted
    through both of these, or to the noise of the last, would rule at any length that is far enough. So a straight line
    is fitted to the lengths from which the model's operations follow one.
    """
    line, terms = _basis(run, group, runtime)
    if terms == TERMS:
        found = growth(group, runtime)
        return found.fit if found and len(found.fit.lengths) > TERMS else None
    return fit([m.case.length for m in line], [m.block_medians_ns for m in line], terms=terms)


def ahead(run: Run, group: Group, runtime: str) -> tuple[str, str]:
    """What the law says about `TARGET` tokens and about a second, unless positions or memory end before.

    Where the memory is too small for one runtime, another one for which it may do is asked.
    """
    limit = positions(run, group)
    if limit is not None and limit < TARGET:
        return "not possible", f"this model has {limit:,} positions"
    law = law_ahead(run, group, runtime)
    if law is None:
        return UNKNOWN, f"{TERMS + 1} lengths at least say how far times lie from a law"
    head, detail = _time(law)
    if too_large := unfit(run, group, runtime):
        if other := _smaller(run, group):
            head, detail = ahead(run, group, other)
            return f"{head} on {other}", f"{detail}; {runtime} does not fit: {too_large}"
        time = f"with enough of it, {head} ({detail})" if head != UNKNOWN else f"of the time, {detail}"
        return "does not fit here", f"{too_large}; {time}, on {runtime}"
    straight = _basis(run, group, runtime)[1] < TERMS
    by = f"; by the straight line from n = {law.lengths[0]} on" if straight else ""
    reach = "" if group.phase == "step" else _reach(law)
    return head, f"{detail}{by}, on {runtime}{reach}"


def _smaller(run: Run, group: Group) -> str | None:
    """The runtime that is the fastest at `TARGET` tokens of those that may fit."""
    laws = {name: law for name in group.lines if (law := law_ahead(run, group, name)) and not unfit(run, group, name)}
    return min(laws, key=lambda name: laws[name].predict(TARGET), default=None)


def unfit(run: Run, group: Group, runtime: str) -> str | None:
    """Why the memory of this machine is for sure too small for `TARGET` tokens; None where it may do."""
    total = whole(run.environment.get("memory_bytes"))
    line, terms = _basis(run, group, runtime)
    peaks = [m.peak_bytes for m in line if m.peak_bytes]
    if total is None or total < 1 or len(peaks) < len(line):
        return None
    try:
        law = fit([m.case.length for m in line], [[peak] for peak in peaks], terms=terms)
    except ValueError:
        return None
    low, mid, high = predict(law, TARGET)
    if low <= total:
        return None
    return f"it takes about {memory(mid)} of memory ({memory(low)}–{memory(high)}), and {memory(total)} are here"


def _basis(run: Run, group: Group, runtime: str) -> tuple[Sequence[Measurement], int]:
    """What a law to go beyond is fitted to, and its terms: a whole line; or, of one that was measured to be linear, two
    terms to its end, which are its last doubling and the lengths before that at which the model's operations follow the
    same straight line, if they are enough."""
    line, read = group.curve(runtime), reading(run, group, runtime)
    if read is None or not read.linear:
        return line, TERMS
    low, high = read.growth.low, read.growth.high
    work = {m.case.length: m.flops or 0 for m in line}
    slope = (work[high] - work[low]) / (high - low)
    off = [n for n in work if n < low and abs(work[high] - slope * (high - n) - work[n]) > _OFF * work[n]]
    found = [m for m in line if m.case.length > max(off, default=0)]
    return (found, _STRAIGHT) if len(found) > _STRAIGHT else (line, TERMS)


def _time(fit: Fit) -> tuple[str, str]:
    estimate = predict(fit, TARGET)
    ends = f"{duration(estimate.low)} to {duration(estimate.high)}"
    far = TARGET / max(fit.lengths)
    reach = f"{number(far, 2)} times the longest measured n" if far > 1 else "within the measured range"
    if _spread(estimate) <= SURE:
        return f"about {duration(estimate.mid)}", f"{ends}; {reach}"
    if _spread(estimate) <= _ROUGH:
        return f"roughly {duration(estimate.mid)}", f"anything from {ends} fits the data; {reach}"
    left = ends if _spread(estimate) <= _ANY else f"anything from {duration(estimate.low)} on"
    return UNKNOWN, f"the data leave {left}; {reach}"


def _reach(fit: Fit) -> str:
    estimate = largest(fit, BUDGET_NS)
    if _spread(estimate) > SURE or estimate.mid < 1:
        return ""
    return f"; one second is enough for {number(estimate.mid)} tokens ({number(estimate.low)}–{number(estimate.high)})"


def _spread(estimate: Estimate) -> float:
    return estimate.high / estimate.low if estimate.low > 0 else math.inf
