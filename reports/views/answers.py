"""The answers, per model, each with the place of its evidence."""

from __future__ import annotations

from ...bench.records import Run
from ..answers import cards
from ..document import Section
from ..sentences import sentences
from ..trend import READING

ORDER = -10


def view(run: Run) -> Section | None:
    """One card a model; above them, what the run comes down to."""
    found = cards(run)
    if not found and not run.verdicts:
        return None
    notes = (
        "Brackets are 95 % intervals. Fastest: paired block by block; a runtime that is not surely faster is called "
        "undecided.",
        READING,
        "Times beyond the longest n assume that the law c0 + c1·n + c2·n² goes on and that memory suffices.",
    )
    return Section("answers", "Answers", sentences(run), found, notes if found else ())
