"""How far each runtime's outputs are from float64, and every verdict in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...bench.records import Measurement, Run, Verdict
from ..document import Cell, Section, Table, Tone
from ..format import number, plural
from ..series import PARITY_LIMIT, Group, distance, groups, worst

ORDER = 30
_STATUS: dict[str, Tone] = {"pass": "good", "fail": "bad"}


def view(run: Run) -> Section | None:
    """One row a timed session, one row a verdict."""
    rows = tuple(row for group in groups(run) for row in _rows(group))
    verdicts = tuple(_verdict(verdict) for verdict in run.verdicts)
    parts = [table for table in (_errors(rows), _verdicts(verdicts)) if table.rows]
    if not parts:
        return None
    lead = (
        "Outputs are taken from the timed session itself and compared with the source model in float64. The error of a "
        "runtime is given in units of the ruler, the error of torch in the same precision on the CPU, which this "
        f"precision costs in any case: up to {number(PARITY_LIMIT, 1)} times the ruler is right. "
        "The row of a case is its worst output.",
    )
    return Section("parity", "Parity", lead, tuple(parts))


def _errors(rows: tuple[tuple[Cell, ...], ...]) -> Table:
    columns = ("model", "phase", "n", "runtime", "worst output", "rms error", "scale", "ruler", "error / ruler")
    return Table("Error of the timed session against float64", columns, rows)


def _rows(group: Group) -> Iterator[tuple[Cell, ...]]:
    measured = [m for line in group.lines.values() for m in line if m.status == "ok"]
    for m in sorted(measured, key=lambda m: m.case.length):
        yield (
            Cell(group.name),
            Cell(group.label),
            Cell(str(m.case.length), m.case.length),
            Cell(m.case.runtime),
            *_error(m),
        )


def _error(m: Measurement) -> Sequence[Cell]:
    error = worst(m)
    if error is None:
        return [Cell("not checked", tone="muted"), *[Cell("–", tone="muted")] * 4]
    far = distance(error)
    compared = f"worst of {plural(len(m.errors), 'output')}" if len(m.errors) > 1 else ""
    rms = Cell("cannot be compared", tone="bad") if error.rms is None else Cell(number(error.rms), error.rms)
    tone: Tone = "good" if far <= PARITY_LIMIT else "bad"
    return [
        Cell(error.name, note="; ".join(text for text in (error.detail, compared) if text)),
        rms,
        Cell(number(error.scale), error.scale),
        Cell(number(error.ruler_rms), error.ruler_rms),
        Cell(number(far), far, tone),
    ]


def _verdicts(rows: tuple[tuple[Cell, ...], ...]) -> Table:
    columns = ("model", "phase", "dtype", "check", "status", "distance", "limit", "detail")
    return Table("Verdicts on the exported graphs", columns, rows)


def _verdict(verdict: Verdict) -> tuple[Cell, ...]:
    return (
        Cell(f"{verdict.model} @ {verdict.size}"),
        Cell(verdict.phase),
        Cell(verdict.dtype),
        Cell(verdict.check),
        Cell(verdict.status, tone=_STATUS.get(verdict.status, "unsure")),
        _optional(verdict.distance),
        _optional(verdict.limit),
        Cell(verdict.detail),
    )


def _optional(value: float | None) -> Cell:
    return Cell("–", tone="muted") if value is None else Cell(number(value, 2), value)
