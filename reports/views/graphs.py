"""The exported graphs: operators, what the passes did to them, sizes, and how long the export took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...bench.fusions import FUSED
from ...bench.records import Run
from ..document import Cell, Section, Table
from ..exports import counts, facts, texts, whole
from ..format import elapsed, memory
from ..series import Group, groups

ORDER = 50
NOTES = (
    "Nodes: the note names every operator.",
    "Fused: operators for which runtimes have one kernel. In pieces: what one such operator could compute, and the "
    "graph computes in several; the result is the same, and a runtime may still put some together as it "
    "loads the graph.",
)
_NOTHING = Cell("–", tone="muted")


def view(run: Run) -> Section | None:
    """One row a graph; nothing when the run does not say."""
    known = [(group, found) for group in groups(run) if (found := facts(run, group))]
    if not known:
        return None
    columns = ("model", "phase", "opset", "nodes", "fused", "in pieces", "passes", "weights", "file", "export took")
    rows = tuple(_row(group, found) for group, found in known)
    table = Table("The exported graphs", columns, rows, tuple(group.index for group, _ in known))
    lead = ("What the exporter wrote. Weights are those of the source; a file holds them and the graph.",)
    return Section("graphs", "Graphs", lead, (table,), NOTES)


def _row(group: Group, found: Mapping[str, Any]) -> tuple[Cell, ...]:
    operators = sorted(counts(found.get("ops")).items(), key=lambda item: (-item[1], item[0]))
    named = [f"{name} {count}" for name, count in operators]
    fused = [f"{name} {count}" for name, count in operators if name in FUSED]
    sizes, done = counts(found.get("sizes")), texts(found.get("notes"))
    total = sum(count for _, count in operators)
    return (
        Cell(group.name),
        Cell(group.label),
        _number(whole(found.get("opset"))),
        replace(_number(total or None), note="; ".join(named)),
        _listed(fused),
        _pieces(found.get("in_pieces")),
        _listed(done),
        _bytes(sizes.get("source_bytes")),
        _bytes(sizes.get("file_bytes")),
        _seconds(found.get("seconds")),
    )


def _listed(items: Sequence[str]) -> Cell:
    return Cell(", ".join(items)) if items else Cell("none", tone="muted")


def _pieces(value: Any) -> Cell:
    """Of a header that does not say, nothing is known."""
    if not isinstance(value, list | tuple):
        return _NOTHING
    pieces = texts(value)
    return replace(_listed([piece.partition(" (")[0] for piece in pieces]), note="; ".join(pieces))


def _number(value: int | None) -> Cell:
    return _NOTHING if value is None else Cell(f"{value:,}", value)


def _bytes(value: int | None) -> Cell:
    return _NOTHING if value is None else Cell(memory(value), value)


def _seconds(value: Any) -> Cell:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(elapsed(value), value) if known else _NOTHING
