"""The claims of the source document with their verdicts, for a page or for `docs/claims.md`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ..bench.claims.outcome import Result, Results, Word
from . import html, markdown
from .document import Cell, Document, Section, Table, Tone
from .format import listing, moment, plain

TONES: Mapping[Word, Tone] = {
    "confirmed": "good",
    "refuted": "bad",
    "confirmed in part": "unsure",
    "not tried": "muted",
}


def document(results: Results) -> Document:
    """A table of verdicts, then every part of every statement with what was measured."""
    claims, errors = results.of("claim"), results.of("error")
    sections = (
        _section("claims", "Claims", "What the guided tour says, and whether a run bears it out.", claims),
        _section("errors", "Errors", "What it says and is wrong, run as it stands there.", errors),
        _environment(results),
    )
    lead = (summary(results.results), f"Found {moment(results.created)} by `isorun claims`.")
    return Document("isorun claims", lead, tuple(section for section in sections if section is not None))


def summary(results: Sequence[Result]) -> str:
    """How many have which verdict."""
    counts = Counter(result.word for result in results)
    said = listing([f"{counts[word]} {word}" for word in TONES if counts[word]]) if counts else "none"
    seconds = sum(result.seconds for result in results)
    return f"{len(results)} statements tried in {seconds:.0f} s: {said}."


def _section(key: str, title: str, lead: str, results: Sequence[Result]) -> Section | None:
    if not results:
        return None
    rows = tuple(
        (Cell(result.key), Cell(result.statement), Cell(result.word, tone=TONES[result.word]), Cell(_right(result)))
        for result in results
    )
    parts = tuple(
        (
            Cell(result.key),
            Cell(part.says),
            Cell("yes" if part.holds else "no", tone="good" if part.holds else "bad"),
            Cell(part.evidence),
        )
        for result in results
        for part in result.parts
    )
    tables = (
        Table(title, ("no.", "statement", "verdict", "what is right" if key == "errors" else "remark"), rows),
        Table(f"{title}: the evidence", ("no.", "part", "holds", "measured"), parts),
    )
    return Section(key, title, (lead,), tuple(table for table in tables if table.rows))


def _right(result: Result) -> str:
    """What is right in place of an error; why a claim was not tried; which of its parts do not hold."""
    if result.reason:
        return result.reason
    missed = [part.says for part in result.parts if not part.holds]
    return result.right or (f"not so: {'; '.join(missed)}" if missed else "")


def _environment(results: Results) -> Section | None:
    rows = tuple((Cell(str(key)), Cell(plain(value))) for key, value in results.environment.items() if plain(value))
    return Section("environment", "Environment", (), (Table("The machine", ("what", "value"), rows),)) if rows else None


FORMATS: Mapping[str, Callable[[Results], str]] = {
    "html": lambda results: html.render(document(results)),
    "md": lambda results: markdown.render(document(results), lines=None),
}
