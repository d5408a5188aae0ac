"""The exported graphs: operators, what the passes did to them, sizes, and how long the export took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...bench.records import Run
from ..document import Cell, Section, Table
from ..exports import counts, facts, whole
from ..format import elapsed, memory, plain
from ..series import Group, groups

ORDER = 50
_TOP = 6  # operators named in a cell; the note has all
_NOTHING = Cell("–", tone="muted")


def view(run: Run) -> Section | None:
    """One row a graph; nothing when the run does not say."""
    known = [(group, found) for group in groups(run) if (found := facts(run, group))]
    if not known:
        return None
    columns = ("model", "phase", "opset", "nodes", "operators", "passes", "weights", "file", "export took")
    rows = tuple(_row(group, found) for group, found in known)
    table = Table("The exported graphs", columns, rows, tuple(group.index for group, _ in known))
    lead = ("What the exporter wrote. Weights are those of the source; a file holds them and the graph.",)
    return Section("graphs", "Graphs", lead, (table,))


def _row(group: Group, found: Mapping[str, Any]) -> tuple[Cell, ...]:
    operators = sorted(counts(found.get("ops")).items(), key=lambda item: (-item[1], item[0]))
    named = [f"{name} {count}" for name, count in operators]
    sizes, notes = counts(found.get("sizes")), found.get("notes")
    done = [plain(note) for note in notes] if isinstance(notes, list | tuple) else []
    total = sum(count for _, count in operators)
    return (
        Cell(group.name),
        Cell(group.label),
        _number(whole(found.get("opset"))),
        _number(total or None),
        Cell(", ".join(named[:_TOP]) + (", …" if len(named) > _TOP else ""), note="; ".join(named)),
        Cell(", ".join(done)) if done else Cell("none", tone="muted"),
        _bytes(sizes.get("source_bytes")),
        _bytes(sizes.get("file_bytes")),
        _seconds(found.get("seconds")),
    )


def _number(value: int | None) -> Cell:
    return _NOTHING if value is None else Cell(f"{value:,}", value)


def _bytes(value: int | None) -> Cell:
    return _NOTHING if value is None else Cell(memory(value), value)


def _seconds(value: Any) -> Cell:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(elapsed(value), value) if known else _NOTHING
