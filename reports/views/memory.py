"""Memory by kind, stacked, against what was predicted; and the peak of each process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...bench.records import Measurement, Run
from ..chart import Piece, stacked
from ..document import Cell, Chart, Section, Table
from ..format import memory
from ..series import Group, groups, runtimes

ORDER = 40
PREDICTED = "predicted"  # the key of `Measurement.memory` that is no part of it
_NOTHING = Cell("–", tone="muted")
_MIB = 2**20


def view(run: Run) -> Section | None:
    """A chart a group where parts are known, and the table of peaks."""
    found, names = groups(run), runtimes(run)
    charts = tuple(chart for group in found if (chart := _chart(group, names)))
    peaks = _peaks(found, names)
    if not charts and not peaks.rows:
        return None
    peak = "Peak resident memory of the process that runs one model on one runtime, code and libraries included."
    bars = (
        "Bars are what the model takes of that, by kind, at each n. The upright mark is what the graph alone needs: "
        "weights, cache and the tensors alive at a time; what operators take inside and allocators keep comes on top."
    )
    return Section("memory", "Memory", (peak, bars) if charts else (peak,), (*charts, *([peaks] if peaks.rows else [])))


def parts(m: Measurement) -> Mapping[str, int]:
    """What is known of a measurement's memory by kind, in bytes."""
    return {kind: size for kind, size in (m.memory or {}).items() if not kind.startswith(PREDICTED)}


def _chart(group: Group, names: Sequence[str]) -> Chart | None:
    measured = [m for name in names for m in group.lines.get(name, ()) if parts(m)]
    if not measured:
        return None
    pieces = [
        Piece(_bar(m), kind.removesuffix("_bytes").replace("_", " "), round(size / _MIB, 2), memory(size))
        for m in measured
        for kind, size in parts(m).items()
    ]
    marks = {_bar(m): predicted / _MIB for m in measured if (predicted := _predicted(m))}
    return stacked(group.title, "memory (MiB)", pieces, marks, group.index)


def _predicted(m: Measurement) -> int:
    return sum(size for kind, size in (m.memory or {}).items() if kind.startswith(PREDICTED))


def _bar(m: Measurement) -> str:
    return f"{m.case.runtime}, n = {m.case.length}"


def _peaks(found: Sequence[Group], names: Sequence[str]) -> Table:
    shown = [name for name in names if any(m.peak_bytes for group in found for m in group.lines.get(name, ()))]
    rows, indices = [], []
    for group in found:
        for n in group.lengths:
            peaks = {
                m.case.runtime: m.peak_bytes for name in shown for m in group.lines.get(name, ()) if m.case.length == n
            }
            if any(peaks.values()):
                cells = (_bytes(peaks.get(name)) for name in shown)
                rows.append((Cell(group.name), Cell(group.label), Cell(str(n), n), *cells))
                indices.append(group.index)
    return Table("Peak memory", ("model", "phase", "n", *shown), tuple(rows), tuple(indices), details=True)


def _bytes(value: int | None) -> Cell:
    return Cell(memory(value), value) if value else _NOTHING
