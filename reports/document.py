"""What a report says, apart from how it looks: sections of prose, answers, tables and charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..bench.records import Run

Tone = Literal["plain", "good", "near", "bad", "unsure", "muted"]
SIGNS: Mapping[Tone, str] = {
    "plain": "",
    "good": "✓",
    "near": "≈",
    "bad": "✗",
    "unsure": "?",
    "muted": "",
}  # for the eye
LONG = 40  # rows beyond which a table is folded until it is asked for


@dataclass(frozen=True)
class Cell:
    """One table cell: its text, the number it shows (for sorting), its tone, and a note shown on demand.

    `shade` from 0 to 1 colours the cell of a heat map.
    """

    text: str
    value: float | str | None = None
    tone: Tone = "plain"
    note: str = ""
    shade: float | None = None


@dataclass(frozen=True)
class Table:
    """Rows under named columns; `caption` says what one row is.

    `groups` names for each row the group of measurements that it is about (its place in `Document.facets`), by which
    readers filter and which other parts link to. A table of `facts` has a name and a value in each row; one of
    `details` stands folded, and one that is `open` never, however long.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    groups: tuple[int, ...] = ()
    facts: bool = False
    details: bool = False
    open: bool = False

    @property
    def folded(self) -> bool:
        """Whether the table waits until it is asked for."""
        return self.details or (len(self.rows) > LONG and not self.open)

    @property
    def numeric(self) -> tuple[bool, ...]:
        """For each column whether it holds numbers, and so is set flush right."""
        columns = zip(*self.rows, strict=True)
        return tuple(all(_is_number(cell) for cell in column) for column in columns) or (False,) * len(self.columns)


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite specification with the sentence that says what one sees in it, and the group that it is about."""

    caption: str
    spec: dict[str, Any]
    group: int | None = None


@dataclass(frozen=True)
class Line:
    """One answer: about what, in a word or two, what it rests on, and the place of the page that shows it."""

    label: str
    head: str
    detail: str
    tone: Tone = "plain"
    evidence: str = ""


@dataclass(frozen=True)
class Answer:
    """A question that a reader has, and what there is to say."""

    question: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Card:
    """The answers about one model, and the groups of measurements that they come from."""

    title: str
    answers: tuple[Answer, ...]
    groups: tuple[int, ...] = ()


@dataclass(frozen=True)
class Section:
    """A titled part of a report; `lead` and the small print `notes` are plain text, one paragraph an entry."""

    key: str
    title: str
    lead: tuple[str, ...]
    parts: tuple[Table | Chart | Card, ...] = ()
    notes: tuple[str, ...] = ()


View = Callable[[Run], Section | None]  # a view turns a run into a section, or says that it has nothing to show


@dataclass(frozen=True)
class Attachment:
    """A file that the page carries and a reader may save."""

    name: str
    media: str
    content: bytes


@dataclass(frozen=True)
class Document:
    """A whole report.

    `facets` has for each group of measurements what it can be chosen by (model, phase, …); `series` are the names of
    the lines of all charts, each with its colour.
    """

    title: str
    lead: tuple[str, ...]
    sections: tuple[Section, ...]
    facets: tuple[Mapping[str, str], ...] = ()
    series: Mapping[str, str] | None = None
    attachments: tuple[Attachment, ...] = ()


def _is_number(cell: Cell) -> bool:
    return cell.tone == "muted" or (isinstance(cell.value, int | float) and not cell.text[:1].isalpha())
