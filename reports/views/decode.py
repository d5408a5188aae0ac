"""What a decode step costs after a long past."""

from __future__ import annotations

from ...bench.records import Run
from ..curves import NOTES, drawable, figure, laws
from ..document import Section
from ..series import groups, runtimes

ORDER = 12


def view(run: Run) -> Section | None:
    """One chart a model that decodes, and the table of the fitted laws."""
    drawn = drawable([group for group in groups(run) if group.phase == "step"])
    if not drawn:
        return None
    table = laws(drawn)
    charts = tuple(figure(group, runtimes(run)) for group in drawn)
    lead = ("Time of one decode step against the cached tokens before it. A flat line is a past that costs nothing.",)
    return Section("decode", "Decode", lead, (*charts, *([table] if table.rows else [])), NOTES)
