"""How tests read a document: its tables by caption, their rows by column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isorun.reports.document import Card, Cell, Chart, Document, Line, Table


def tables(made: Document, section: str) -> dict[str, Table]:
    (found,) = (part for part in made.sections if part.key == section)
    return {part.caption: part for part in found.parts if isinstance(part, Table)}


def records(table: Table) -> Iterator[dict[str, Cell]]:
    return (dict(zip(table.columns, row, strict=True)) for row in table.rows)


def facts(made: Document) -> set[tuple[str, str, str]]:
    return {
        (caption, row[0].text, row[1].text)
        for caption, table in tables(made, "environment").items()
        for row in table.rows
        if len(row) == 2
    }


def verdicts(made: Document) -> dict[tuple[str, str], dict[str, Cell]]:
    (table,) = tables(made, "summary").values()
    return {(row["model"].text.split(" @ ")[0], row["phase"].text): row for row in records(table)}


def said(made: Document, section: str = "answers") -> str:
    (found,) = (part for part in made.sections if part.key == section)
    return " ".join(found.lead)


def answers(made: Document, model: str) -> dict[tuple[str, str], Line]:
    """What the card of a model says, by question and what it is about."""
    (found,) = (part for part in made.sections if part.key == "answers")
    (card,) = (part for part in found.parts if isinstance(part, Card) and part.title.startswith(f"{model} @"))
    return {(answer.question, line.label): line for answer in card.answers for line in answer.lines}


def charts(made: Document, *sections: str) -> dict[str, dict[str, Any]]:
    """The specifications of some sections by caption."""
    return {
        part.caption: part.spec
        for section in made.sections
        if section.key in sections
        for part in section.parts
        if isinstance(part, Chart)
    }


def dots(spec: dict[str, Any], layer: int) -> list[dict[str, Any]]:
    """The data of one layer of a chart."""
    values: list[dict[str, Any]] = spec["layer"][layer]["data"]["values"]
    return values
