"""The claims of the source document with their verdicts, for a page or for `docs/claims.md`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replaced
from pathlib import Path

from ..bench.claims.outcome import Kind, Result, Results, Word
from . import html, markdown
from .data import finite
from .document import Cell, Document, Section, Table, Tone
from .files import replace
from .format import listing, moment, plain

TONES: Mapping[Word, Tone] = {
    "confirmed": "good",
    "refuted": "bad",
    "confirmed in part": "unsure",
    "not tried": "muted",
}

_KINDS: tuple[tuple[str, str, str, Kind], ...] = (
    ("claims", "Claims", "What the guided tour says, and whether a run bears it out.", "claim"),
    ("errors", "Errors", "What it says and is wrong, run as it stands there.", "error"),
)
FILE = "claims.json"  # in the folder of a run
LARGEST = 2**22  # bytes of it


def save(results: Results, folder: Path) -> None:
    """Put results into a run's folder, where its report finds them.

    Raises:
        OSError: the folder cannot be written to.
    """
    replace(folder / FILE, f"{json.dumps(finite(results.to_json()), indent=1)}\n".encode())


def saved(folder: Path) -> Results | None:
    """The results in a run's folder; None when there are none.

    Raises:
        ValueError: a file that is too large, or holds something else.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{FILE} has more than {LARGEST:,} bytes")
    try:
        return Results.from_json(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{FILE} cannot be read: {error}") from None


def tables(results: Results) -> tuple[Table, ...]:
    """The verdicts and the evidence of claims and of errors, for the page of a run."""
    found = (_section(key, title, "", results.of(kind)) for key, title, _, kind in _KINDS)
    return tuple(
        replaced(table, details="evidence" in table.caption)
        for section in found
        if section
        for table in section.parts
        if isinstance(table, Table)
    )


def document(results: Results) -> Document:
    """A table of verdicts, then every part of every statement with what was measured."""
    known = (_section(key, title, lead, results.of(kind)) for key, title, lead, kind in _KINDS)
    sections = (*known, _environment(results))
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
