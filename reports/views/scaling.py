"""How the time of a call grows with n: measured points, the fitted law, and the curve that the FLOPs predict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ...bench.complexity import Fit
from ...bench.records import Measurement, Run
from ...bench.timing import median_interval
from ..chart import Axes, Node, Point, loglog
from ..document import Cell, Chart, Section, Table
from ..format import duration, exponent, length, number
from ..series import GROWTH_TONES, Group, Growth, groups, growth, runtimes

ORDER = 10
POINTS = 33  # of a fitted curve, evenly on the log axis
_MS = 1e6  # nanoseconds


def view(run: Run) -> Section | None:
    """One chart a model and phase, and the table of the fitted laws."""
    drawn = [group for group in groups(run) if any(group.curve(runtime) for runtime in group.lines)]
    if not drawn:
        return None
    charts = tuple(_chart(group, runtimes(run)) for group in drawn)
    rows = tuple(_row(group, name, law) for group in drawn for name in group.lines if (law := growth(group, name)))
    lead = (
        "Both axes are logarithmic, so a power of n is a straight line. In forward n counts the new tokens of a call, "
        "in a decode step the cached tokens before the one new token.",
    )
    notes = (
        "Fitted: T(n) = c0 + c1·n + c2·n² with no negative term, on relative error; n* = c1/c2 is where the quadratic "
        "term overtakes the linear one.",
        "FLOPs: what the model computes at each n, scaled to the last measured point.",
    )
    return Section("scaling", "Scaling", lead, (*charts, *([_table(rows)] if rows else [])), notes)


def _table(rows: tuple[tuple[Cell, ...], ...]) -> Table:
    columns = (
        *("model", "phase", "runtime", "c0", "c1 (per token)", "c2 (per token²)"),
        *("exponent", "of FLOPs", "crossover n*", "verdict"),
    )
    return Table("The fitted law of each line", columns, rows)


def _row(group: Group, runtime: str, law: Growth) -> tuple[Cell, ...]:
    fit = law.fit
    terms = zip(fit.coefficients, fit.intervals, strict=True)
    return (
        Cell(group.name),
        Cell(group.label),
        Cell(runtime),
        *(Cell(duration(value, interval), value) for value, interval in terms),
        Cell(exponent(fit.exponent, fit.exponent_interval), fit.exponent),
        Cell("–", tone="muted") if law.predicted is None else Cell(exponent(law.predicted), law.predicted),
        _crossover(fit),
        Cell(law.word, tone=GROWTH_TONES.get(law.word, "unsure"), note=law.reason),
    )


def _crossover(fit: Fit) -> Cell:
    if fit.crossover is not None:
        return Cell(length(fit.crossover, fit.crossover_interval), fit.crossover)
    if fit.crossover_interval is None:
        return Cell("no quadratic term", tone="muted")
    low = fit.crossover_interval.low
    return Cell(f"beyond {number(low)}" if low > 0 else "not determined", tone="muted")


def _chart(group: Group, names: Sequence[str]) -> Chart:
    ticks = [n for n in group.lengths if n > 0]
    axes = Axes("n, cached tokens" if group.phase == "step" else "n, new tokens", "time of a call (ms)", ticks)
    points = [_point(m) for name in names for m in group.curve(name)]
    nodes = [node for name in names for node in (*_fitted(group, name), *_predicted(group.curve(name)))]
    return loglog(group.title, axes, points, nodes, names)


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
    """The FLOPs of each measured call, scaled so that the last one meets the last time."""
    if len(line) > 1 and all(m.flops for m in line):
        scale = (line[-1].median_ns or 0.0) / (line[-1].flops or 1)
        yield from (Node(m.case.runtime, "FLOPs", m.case.length, (m.flops or 0) * scale / _MS) for m in line)
