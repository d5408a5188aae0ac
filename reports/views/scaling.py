"""How the time of a pass grows with its tokens: measured points, the fitted law, and the curve of theory."""

from __future__ import annotations

from ...bench.records import Run
from ..curves import NOTES, drawable, figure, laws
from ..document import Section
from ..series import groups, runtimes

ORDER = 10


def view(run: Run) -> Section | None:
    """One chart a model, and the table of the fitted laws."""
    drawn = drawable([group for group in groups(run) if group.phase != "step"])
    if not drawn:
        return None
    table = laws(drawn)
    charts = tuple(figure(group, runtimes(run)) for group in drawn)
    lead = ("Time against the new tokens of a pass. Both axes are logarithmic, so a power of n is a straight line.",)
    return Section("scaling", "Scaling", lead, (*charts, *([table] if table.rows else [])), NOTES)
