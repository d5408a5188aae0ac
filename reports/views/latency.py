"""Every time that was measured and verified, a row an n and a column a runtime, and every case without a time."""

from __future__ import annotations

from collections.abc import Sequence

from ...bench.records import Measurement, Run
from ...bench.timing import median_interval
from ..control import control
from ..document import Cell, Section, Table
from ..format import duration, number
from ..race import Place, lead, places, who
from ..series import Group, groups, runtimes, untimed

ORDER = 20
_NOTHING = Cell("–", tone="muted")


def view(run: Run) -> Section | None:
    """One table a phase, and one of the cases that show no time."""
    found = groups(run)
    if not found:
        return None
    names = [name for name in runtimes(run) if any(group.shown(name) for group in found)]
    text = (
        "The time of a call is the median over the medians of all blocks, with its 95 % interval; preparing the model "
        "and moving data in and out is not part of it. Tokens per second count new tokens on the fastest runtime.",
        *([control(run)] if len(names) > 1 else []),
    )
    parts = [_times([g for g in found if g.phase == phase], names) for phase in dict.fromkeys(g.phase for g in found)]
    shown = tuple(table for table in (*parts, _missing(found)) if table.rows)
    return Section("latency", "Times", text, shown) if shown else None


def _times(members: Sequence[Group], names: Sequence[str]) -> Table:
    phase = members[0].label.split(",")[0]
    alike = all(group.label == members[0].label for group in members)
    axis = "cached tokens" if members[0].phase == "step" else "new tokens"
    columns = ["model", *([] if alike else ["phase"]), f"n ({axis})", *names, "fastest", "tokens/s"]
    found = [(group, place) for group in members for place in places(group)]
    rows = tuple(_row(group, place, names, alike) for group, place in found)
    return Table(f"Time of a call, {phase}", tuple(columns), rows, tuple(group.index for group, _ in found))


def _row(group: Group, place: Place, names: Sequence[str], alike: bool) -> tuple[Cell, ...]:
    measured = {name: m for name in names for m in group.shown(name) if m.case.length == place.n}
    first = measured[place.first]
    rate = first.case.batch * first.case.seq / (first.median_ns or 1.0) * 1e9
    return (
        Cell(group.name),
        *([] if alike else [Cell(group.label)]),
        Cell(str(place.n), place.n),
        *(_time(measured[name]) if name in measured else _NOTHING for name in names),
        _fastest(place),
        Cell(number(rate), rate),
    )


def _time(m: Measurement) -> Cell:
    value = m.median_ns or 0.0
    return Cell(duration(value, median_interval(m.block_medians_ns)), value)


def _fastest(place: Place) -> Cell:
    said = who(place)
    if place.second is None:
        return Cell(said, tone="muted", note="nothing else has a verified time here")
    return Cell(f"{said}, {lead(place)}", tone="unsure" if place.level and not place.alike else "good")


def _missing(found: Sequence[Group]) -> Table:
    """Cases that differ in n alone share a row."""
    alike: dict[tuple[int, str, str, str, str, str], list[int]] = {}
    for group in found:
        for m in (m for line in group.lines.values() for m in line):
            if reason := untimed(m):
                status = "not shown" if m.status == "ok" else m.status
                key = (group.index, group.name, group.label, m.case.runtime, status, reason)
                alike.setdefault(key, []).append(m.case.length)
    rows = (
        (
            Cell(name),
            Cell(label),
            Cell(runtime),
            Cell(", ".join(map(str, lengths))),
            Cell(status, tone="muted" if status == "skipped" else "bad"),
            Cell(reason),
        )
        for (_, name, label, runtime, status, reason), lengths in alike.items()
    )
    columns = ("model", "phase", "runtime", "n", "status", "reason")
    return Table("Cases without a time", columns, tuple(rows), tuple(index for index, *_ in alike))
