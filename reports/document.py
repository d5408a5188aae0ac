"""What a report says, apart from how it looks: sections of prose, tables and charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..bench.records import Run

Tone = Literal["plain", "good", "bad", "unsure", "muted"]
SIGNS: Mapping[Tone, str] = {
    "plain": "",
    "good": "✓",
    "bad": "✗",
    "unsure": "?",
    "muted": "",
}  # for the eye
LONG = 12  # rows beyond which a table is folded until it is asked for


@dataclass(frozen=True)
class Cell:
    """One table cell: its text, the number it shows (for sorting and CSV), its tone, and a note shown on demand."""

    text: str
    value: float | str | None = None
    tone: Tone = "plain"
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under named columns; `caption` says what one row is."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def folded(self) -> bool:
        """Whether the table is too long to stand open in the text."""
        return len(self.rows) > LONG

    @property
    def numeric(self) -> tuple[bool, ...]:
        """For each column whether it holds numbers, and so is set flush right."""
        columns = zip(*self.rows, strict=True)
        return tuple(all(_is_number(cell) for cell in column) for column in columns) or (False,) * len(self.columns)


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite specification with the sentence that says what one sees in it."""

    caption: str
    spec: dict[str, Any]


@dataclass(frozen=True)
class Section:
    """A titled part of a report; `lead` and the small print `notes` are plain text, one paragraph an entry."""

    key: str
    title: str
    lead: tuple[str, ...]
    parts: tuple[Table | Chart, ...] = ()
    notes: tuple[str, ...] = ()


View = Callable[[Run], Section | None]  # a view turns a run into a section, or says that it has nothing to show


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    lead: tuple[str, ...]
    sections: tuple[Section, ...]


def _is_number(cell: Cell) -> bool:
    return cell.tone == "muted" or (isinstance(cell.value, int | float) and not cell.text[:1].isalpha())
