"""How far each runtime's outputs are from float64: a heat map over n × runtime, and every verdict in full."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...bench.records import PARITY_LIMIT, Measurement, Run, Verdict
from ..document import Cell, Section, Table, Tone
from ..format import number
from ..series import Group, distance, groups, worst

ORDER = 30
_STATUS: dict[str, Tone] = {"pass": "good", "fail": "bad"}
_NOTHING = Cell("–", tone="muted")


def view(run: Run) -> Section | None:
    """One row a line of timed sessions, one row a verdict."""
    found = groups(run)
    parts = [table for table in (_map(found), _worst(found), _verdicts(run)) if table.rows]
    if not parts:
        return None
    lead = (
        "Outputs are taken from the timed session itself and compared with the source model in float64. The error of a "
        "runtime is given in units of the ruler, the error of torch in the same precision on the CPU, which this "
        f"precision costs in any case: up to {number(PARITY_LIMIT, 1)} times the ruler is right. "
        "A case counts by its worst output.",
    )
    return Section("parity", "Parity", lead, tuple(parts))


def _map(found: Sequence[Group]) -> Table:
    """The heat map: a row a model, phase and runtime, a column an n."""
    lines = [(group, runtime, _errors(line)) for group in found for runtime, line in group.lines.items()]
    lines = [item for item in lines if item[2]]
    lengths = sorted({n for _, _, errors in lines for n in errors})
    rows = tuple(
        (
            Cell(group.name),
            Cell(group.label),
            Cell(runtime),
            *(_heat(errors[n]) if n in errors else _NOTHING for n in lengths),
        )
        for group, runtime, errors in lines
    )
    columns = ("model", "phase", "runtime", *(f"n = {n}" for n in lengths))
    return Table("Error in units of the ruler, by n", columns, rows, tuple(group.index for group, _, _ in lines))


def _errors(line: Sequence[Measurement]) -> dict[int, float]:
    return {m.case.length: distance(error) for m in line if (error := worst(m))}


def _heat(far: float) -> Cell:
    """The shade is logarithmic: nothing at the ruler itself, full at a hundred times the limit."""
    top = math.log(100 * PARITY_LIMIT)
    shade = min(1.0, max(0.0, math.log(far) / top)) if 0 < far < math.inf else float(far > 0)
    return Cell(number(far), far, "plain" if far <= PARITY_LIMIT else "bad", shade=round(shade, 2))


def _worst(found: Sequence[Group]) -> Table:
    """For each line the n at which it is furthest off, in numbers."""
    lines = [
        (group, max(compared, key=lambda m: distance(error) if (error := worst(m)) else 0.0))
        for group in found
        for line in group.lines.values()
        if (compared := [m for m in line if m.errors])
    ]
    columns = ("model", "phase", "runtime", "n", "worst output", "rms error", "scale", "ruler", "error / ruler")
    rows = tuple(_numbers(group, m) for group, m in lines)
    indices = tuple(group.index for group, _ in lines)
    return Table("Where each line is furthest from float64", columns, rows, indices, details=True)


def _numbers(group: Group, m: Measurement) -> tuple[Cell, ...]:
    error = worst(m)
    named = (Cell(group.name), Cell(group.label), Cell(m.case.runtime), Cell(str(m.case.length), m.case.length))
    if error is None:
        return (*named, *[_NOTHING] * 5)
    far = distance(error)
    return (
        *named,
        Cell(error.name, note=error.detail or ""),
        Cell("cannot be compared", tone="bad") if error.rms is None else Cell(number(error.rms), error.rms),
        Cell(number(error.scale), error.scale),
        Cell(number(error.ruler_rms), error.ruler_rms),
        Cell(number(far), far, "good" if far <= PARITY_LIMIT else "bad"),
    )


def _verdicts(run: Run) -> Table:
    columns = ("model", "phase", "dtype", "check", "status", "distance", "limit", "detail")
    return Table("Verdicts on the exported graphs", columns, tuple(map(_verdict, run.verdicts)), details=True)


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
    return _NOTHING if value is None else Cell(number(value, 2), value)
