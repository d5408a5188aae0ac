"""Every time that was measured and verified, and every case that has none with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...bench.records import Measurement, Run
from ...bench.timing import Comparison, median_interval
from ..document import Cell, Section, Table
from ..format import duration, number, ratio
from ..series import BASE, SPEED_TONES, Group, groups, runtimes, speeds, untimed, worded

ORDER = 20


def view(run: Run) -> Section | None:
    """One table a phase, and one of the cases that show no time."""
    found = groups(run)
    if not found:
        return None
    lead = (
        "The time of a call is the median over the medians of all blocks, with its 95 % interval; preparing the model "
        "and moving data in and out is not part of it. Tokens per second count new tokens.",
    )
    paired = BASE in runtimes(run)
    parts = [_times([g for g in found if g.phase == phase], paired) for phase in dict.fromkeys(g.phase for g in found)]
    missing = _missing(found)
    shown = tuple(table for table in (*parts, missing) if table.rows)
    return Section("latency", "Latency", lead, shown) if shown else None


def _times(members: Sequence[Group], paired: bool) -> Table:
    phase = members[0].label.split(",")[0]
    axis = "cached tokens" if members[0].phase == "step" else "new tokens"
    columns = ["model", "phase", f"n ({axis})", "runtime", "time of a call"]
    columns += [f"speed over {BASE}"] if paired else []
    columns += ["tokens/s", "stopped by"]
    rows = (row for group in members for row in _rows(group, paired))
    return Table(f"Time of a call, {phase}", tuple(columns), tuple(rows))


def _rows(group: Group, paired: bool) -> Iterator[tuple[Cell, ...]]:
    gains = {runtime: speeds(group, runtime) for runtime in group.lines}
    shown = [m for runtime in group.lines for m in group.shown(runtime)]
    for m in sorted(shown, key=lambda m: m.case.length):
        gain = gains[m.case.runtime].get(m.case.length)
        yield (
            Cell(group.name),
            Cell(group.label),
            Cell(str(m.case.length), m.case.length),
            Cell(m.case.runtime),
            _time(m),
            *((_gain(gain),) if paired else ()),
            _rate(m),
            Cell(m.stopped or "–", tone="plain" if m.stopped else "muted"),
        )


def _time(m: Measurement) -> Cell:
    value = m.median_ns or 0.0
    return Cell(duration(value, median_interval(m.block_medians_ns)), value)


def _gain(gain: Comparison | None) -> Cell:
    if gain is None:
        return Cell("–", tone="muted")
    return Cell(f"{ratio(gain.ratio, gain.interval)} {worded(gain)}", gain.ratio, SPEED_TONES[gain.word])


def _rate(m: Measurement) -> Cell:
    rate = m.case.batch * m.case.seq / (m.median_ns or 1.0) * 1e9
    return Cell(number(rate), rate)


def _missing(found: Sequence[Group]) -> Table:
    """Cases that differ in n alone share a row."""
    alike: dict[tuple[str, str, str, str, str], list[int]] = {}
    for group in found:
        for m in (m for line in group.lines.values() for m in line):
            if reason := untimed(m):
                status = "not shown" if m.status == "ok" else m.status
                alike.setdefault((group.name, group.label, m.case.runtime, status, reason), []).append(m.case.length)
    rows = (
        (
            Cell(name),
            Cell(label),
            Cell(runtime),
            Cell(", ".join(map(str, lengths))),
            Cell(status, tone="muted" if status == "skipped" else "bad"),
            Cell(reason),
        )
        for (name, label, runtime, status, reason), lengths in alike.items()
    )
    return Table("Cases without a time", ("model", "phase", "runtime", "n", "status", "reason"), tuple(rows))
