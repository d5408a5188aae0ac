"""How the time of a call grows with n: the chart of a group and the table of fitted laws."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..bench.complexity import Fit
from ..bench.extrapolate import predict
from ..bench.growth import Growth
from ..bench.records import Measurement, Run
from ..bench.timing import Interval, median_interval
from .ahead import TARGET, law_ahead, unfit
from .chart import Axes, Node, Point, loglog
from .document import Cell, Chart, Table
from .exports import positions
from .format import duration, exponent, length, number, span
from .series import Group, growth
from .trend import ELSEWHERE, TONES, explained

POINTS = 17  # of a fitted curve, evenly on the log axis
_MS = 1e6  # nanoseconds
NOTES = (
    "Fitted: T(n) = c0 + c1·n + c2·n² with no negative term, on relative error; n* = c1/c2 is where the quadratic "
    "term overtakes the linear one.",
    f"Verdict: {ELSEWHERE}",
    "Theory: operations and bytes of the graph at the rates that the runtime reached on bare products, scaled to the "
    "last measured point; operations of the model alone where those are not known.",
)


def drawable(found: Sequence[Group]) -> list[Group]:
    """The groups that have anything to draw."""
    return [group for group in found if any(group.curve(runtime) for runtime in group.lines)]


def laws(run: Run, found: Sequence[Group]) -> Table:
    """The fitted law of every line of some groups, a row a line; nothing beyond where a model's positions end."""
    known = [(group, name, law) for group in found for name in group.lines if (law := growth(group, name))]
    columns = (
        *("model", "phase", "runtime", "c0", "c1 (per token)", "c2 (per token²)"),
        *("judged at n", "exponent", "of theory", "verdict", "exponent over all n", "crossover n*", f"at {TARGET:,}"),
    )
    rows = tuple(_row(run, *item) for item in known)
    return Table(
        "The fitted law of each line", columns, rows, tuple(group.index for group, _, _ in known), details=True
    )


def _row(run: Run, group: Group, runtime: str, law: Growth) -> tuple[Cell, ...]:
    limit = positions(run, group)
    terms = zip(law.fit.coefficients, law.fit.intervals, strict=True)
    return (
        Cell(group.name),
        Cell(group.label),
        Cell(runtime),
        *(Cell(duration(value, interval), value) for value, interval in terms),
        Cell(span((law.low, law.high)), law.high),
        Cell(exponent(law.exponent, law.interval), law.exponent),
        _power(law.theory),
        Cell(law.word, tone=TONES.get(law.word, "unsure"), note=explained(group, runtime, law)),
        Cell(exponent(law.fit.exponent, law.fit.exponent_interval), law.fit.exponent),
        _crossover(law.fit, limit),
        _ahead(run, group, runtime, law),
    )


def _power(value: float | None) -> Cell:
    return Cell("–", tone="muted") if value is None else Cell(exponent(value), value)


def _ahead(run: Run, group: Group, runtime: str, law: Growth) -> Cell:
    limit = positions(run, group)
    if limit is not None and limit < TARGET:
        return Cell(f"beyond its {limit:,} positions", tone="muted")
    if too_large := unfit(run, group, runtime):
        return Cell("does not fit here", tone="muted", note=too_large)
    farther = law_ahead(run, group, runtime)
    if farther is None:
        return Cell("cannot tell", tone="muted", note="as many lengths as terms fit any law")
    low, mid, high = predict(farther, TARGET)
    return Cell(duration(mid, Interval(low, high)), mid, note="" if farther == law.fit else _line(farther))


def _line(law: Fit) -> str:
    c0, c1, _ = (duration(value, interval) for value, interval in zip(law.coefficients, law.intervals, strict=True))
    return f"by the straight line from n = {law.lengths[0]} on: c0 {c0}, c1 {c1} a token"


def _crossover(fit: Fit, limit: int | None) -> Cell:
    if fit.crossover is not None and limit is not None and fit.crossover > limit:
        return Cell(f"beyond its {limit:,} positions", tone="muted")
    if fit.crossover is not None:
        return Cell(length(fit.crossover, fit.crossover_interval), fit.crossover)
    if fit.crossover_interval is None:
        return Cell("no quadratic term", tone="muted")
    low = fit.crossover_interval.low
    return Cell(f"beyond {number(low)}" if low > 0 else "not determined", tone="muted")


def figure(group: Group, names: Sequence[str]) -> Chart:
    """The chart of a group: a colour for each of the runtimes `names`."""
    ticks = [n for n in group.lengths if n > 0]
    axes = Axes("n, cached tokens" if group.phase == "step" else "n, new tokens", "time of a call (ms)", ticks)
    points = [_point(m) for name in names for m in group.curve(name)]
    nodes = [node for name in names for node in (*_fitted(group, name), *_predicted(group.curve(name)))]
    return loglog(group.title, axes, points, nodes, names, group.index)


def _point(m: Measurement) -> Point:
    value, interval = m.median_ns or 0.0, median_interval(m.block_medians_ns)
    known = math.isfinite(interval.high)  # a bar to infinity would be the whole axis
    low, high = (interval.low, interval.high) if known else (value, value)
    return Point(m.case.runtime, m.case.length, value / _MS, low / _MS, high / _MS, duration(value, interval))


def _fitted(group: Group, runtime: str) -> Iterator[Node]:
    """The fitted law between the first and the last measured n."""
    law, line = growth(group, runtime), group.curve(runtime)
    if law is not None:
        low, high = line[0].case.length, line[-1].case.length
        for step in range(POINTS):
            n = low * (high / low) ** (step / (POINTS - 1))
            yield Node(runtime, "fitted", n, law.fit.predict(n) / _MS)


def _predicted(line: Sequence[Measurement]) -> Iterator[Node]:
    """The work of each measured call, scaled so that the last one meets the last time."""
    if len(line) > 1 and all(m.work for m in line):
        scale = (line[-1].median_ns or 0.0) / (line[-1].work or 1)
        yield from (Node(m.case.runtime, "theory", m.case.length, (m.work or 0) * scale / _MS) for m in line)
