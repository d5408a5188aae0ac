"""How tests read a document: its tables by caption, their rows by column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isorun.reports.document import Cell, Document, Table


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


def said(made: Document, section: str = "summary") -> str:
    (found,) = (part for part in made.sections if part.key == section)
    return " ".join(found.lead)


def dots(spec: dict[str, Any], layer: int) -> list[dict[str, Any]]:
    """The data of one layer of a chart."""
    return spec["datasets"][spec["layer"][layer]["data"]["name"]]
