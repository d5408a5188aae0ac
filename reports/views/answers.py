"""The answers, per model, each with the place of its evidence."""

from __future__ import annotations

from collections.abc import Iterator

from ...bench.records import Run
from ...models.config import SIZES
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
        *_scaled(run),
        "Brackets are 95 % intervals. Fastest: paired block by block; a runtime that is not surely faster is called "
        "undecided.",
        READING,
        "Times beyond the longest n assume that memory suffices and that the law goes on: c0 + c1·n + c2·n², and "
        "without c2 where sparse attention was measured to be linear.",
    )
    return Section("answers", "Answers", sentences(run), found, notes if found else ())


def _scaled(run: Run) -> Iterator[str]:
    """What the sizes of presets mean: they bear the names of models that are hundreds of times as large."""
    for size in sorted({m.case.size for m in run.measurements} & SIZES.keys()):
        if SIZES[size]:
            scaled = f"dim {SIZES[size]['dim']}, {SIZES[size]['layers']} layers and random weights"
            yield f"@ {size} is the architecture of that name at {scaled}: times are not those of the published model."
