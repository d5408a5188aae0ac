"""What a larger batch costs, and what it brings."""

from __future__ import annotations

from ...bench.records import Run
from ...bench.timing import median_interval
from ..batches import Gain, gains
from ..document import Cell, Section, Table
from ..format import duration, ratio
from ..series import groups

ORDER = 22


def view(run: Run) -> Section | None:
    """One row a model, phase, n, runtime and batch beyond the smallest; nothing where all batches are one."""
    found = gains(groups(run))
    if not found:
        return None
    columns = ("model", "phase", "n", "runtime", "batch", "time of a call", "against batch", "cost", "tokens/s")
    rows = tuple(_row(gain) for gain in found)
    table = Table("A call of more rows", columns, rows, tuple(gain.group.index for gain in found))
    lead = ("A call of several rows against one of the smallest batch, at the same n on the same runtime.",)
    notes = (
        "Cost: the time of the larger call over that of the smaller. Tokens/s: rows over cost, above 1 where the batch "
        "pays. Both were measured in processes of their own, so that their blocks do not pair; brackets are 95 % "
        "intervals, with what two processes differ by anyway where the run has a control.",
    )
    return Section("batches", "Batch", lead, (table,), notes)


def _row(gain: Gain) -> tuple[Cell, ...]:
    case, ns = gain.more.case, gain.more.median_ns or 0.0
    return (
        Cell(gain.group.name),
        Cell(gain.group.label),
        Cell(str(case.length), case.length),
        Cell(case.runtime),
        Cell(str(case.batch), case.batch),
        Cell(duration(ns, median_interval(gain.more.block_medians_ns)), ns),
        Cell(str(gain.base.case.batch), gain.base.case.batch),
        Cell(ratio(gain.cost, gain.interval), gain.cost),
        Cell(ratio(gain.rate, gain.rate_interval), gain.rate, gain.tone),
    )
