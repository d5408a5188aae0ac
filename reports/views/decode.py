"""What a decode step costs after a long past."""

from __future__ import annotations

from ...bench.records import Run
from ...bench.timing import Interval
from ..curves import NOTES, drawable, figure, laws
from ..document import Cell, Section, Table
from ..format import duration, ratio
from ..generations import generations
from ..series import groups, runtimes

ORDER = 12
_DERIVED = (
    "Generating: the fitted laws added up, not measured, within the measured n. With the cache: one pass over the "
    "prompt, then a step over all tokens so far for each further one. Without: a pass over all tokens so far for each."
)


def view(run: Run) -> Section | None:
    """One chart a model that decodes, and the table of the fitted laws."""
    found = groups(run)
    drawn = drawable([group for group in found if group.phase == "step"])
    if not drawn:
        return None
    charts = tuple(figure(group, runtimes(run)) for group in drawn)
    whole = _generating(run)
    tables = tuple(table for table in (whole, laws(run, drawn)) if table.rows)
    lead = ("Time of one decode step against the cached tokens before it. A flat line is a past that costs nothing.",)
    return Section("decode", "Decode", lead, (*charts, *tables), (*NOTES, *([_DERIVED] if whole.rows else [])))


def _generating(run: Run) -> Table:
    """A row a line of steps that has one of passes."""
    found = generations(run, groups(run))
    columns = ("model", "phase", "runtime", "prompt", "tokens", "with the cache", "without", "the cache saves")
    rows = tuple(
        (
            Cell(made.group.name),
            Cell(made.group.label),
            Cell(made.runtime),
            Cell(str(made.prompt), made.prompt),
            Cell(str(made.tokens), made.tokens),
            *(Cell(duration(e.mid, Interval(e.low, e.high)), e.mid) for e in (made.cached, made.uncached)),
            Cell(ratio(made.saved.mid, Interval(made.saved.low, made.saved.high)), made.saved.mid),
        )
        for made in found
    )
    caption = "Generating, with and without a cache: derived from the fitted laws, not measured"
    return Table(caption, columns, rows, tuple(made.group.index for made in found))
