"""How the time of a pass grows with its tokens: measured points, the fitted law, and the curve of theory."""

from __future__ import annotations

from ...bench.records import Run
from ..curves import NOTES, drawable, figure, laws
from ..document import Section
from ..series import groups, runtimes
from ..sparse import RULE, table

ORDER = 10


def view(run: Run) -> Section | None:
    """One chart a model, and the table of the fitted laws."""
    drawn = drawable([group for group in groups(run) if group.phase != "step"])
    if not drawn:
        return None
    tables = [found for found in (table(run, tuple(drawn)), laws(run, drawn)) if found and found.rows]
    notes = (*NOTES, RULE) if len(tables) > 1 else NOTES
    charts = tuple(figure(group, runtimes(run)) for group in drawn)
    lead = ("Time against the new tokens of a pass. Both axes are logarithmic, so a power of n is a straight line.",)
    return Section("scaling", "Scaling", lead, (*charts, *tables), notes)
