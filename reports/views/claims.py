"""The source document's statements, where `isorun claims` has put its results into the folder of the run."""

from __future__ import annotations

from ...bench.records import Run
from ..claims import saved, summary, tables
from ..document import Section
from ..format import moment, plain

ORDER = 80
_HOW = (
    "Not tried in this run. `isorun claims -o RUN`, with the folder of this run, tries every statement of the source "
    "document on this machine and adds the verdicts to this page."
)


def view(run: Run) -> Section | None:
    """The verdicts and the evidence; without results, how to get them."""
    try:
        found = saved(run.folder)
    except ValueError as error:
        return Section("claims", "Claims", (f"Not shown: {error}.",))
    if found is None:
        return Section("claims", "Claims", (_HOW,)) if run.measurements else None
    machine = plain(found.environment.get("processor"))
    where = f" on {machine}" if machine else ""
    lead = (summary(found.results), f"Found {moment(found.created)}{where} by `isorun claims`.")
    return Section("claims", "Claims", lead, tables(found))
