"""A document as GitHub Markdown: long tables folded, notes below their table, a chart as a pointer to the page."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .document import SIGNS, Cell, Chart, Document, Section, Table
from .format import plural

_SPECIAL = re.compile(r"([\\`*_\[\]|~$#])")
_OPENING = re.compile(r"^([-+=]|\d+(?=[.)]))")  # what starts a list or underlines a heading


def render(document: Document, page: str = "report.html") -> str:
    """The document as text; `page` is the address of the HTML page that draws the charts."""
    blocks = [f"# {_text(document.title)}", *map(_paragraph, document.lead)]
    for section in document.sections:
        blocks += _section(section, page)
    return "\n\n".join(blocks) + "\n"


def _section(section: Section, page: str) -> Iterator[str]:
    yield f"## {_text(section.title)}"
    yield from map(_paragraph, section.lead)
    for part in section.parts:
        if isinstance(part, Chart):
            yield f"Chart: {_text(part.caption)} (drawn in [the page]({page}))."
        else:
            yield from _folded(part) if part.folded else _table(part)
    yield from map(_paragraph, section.notes)


def _folded(table: Table) -> Iterator[str]:
    yield f"<details><summary>{_text(table.caption)} ({plural(len(table.rows), 'row')})</summary>"
    yield _grid(table)
    yield from _notes(table)
    yield "</details>"


def _table(table: Table) -> Iterator[str]:
    yield f"**{_text(table.caption)}**"
    yield _grid(table)
    yield from _notes(table)


def _grid(table: Table) -> str:
    rule = ["---:" if numeric else "---" for numeric in table.numeric]
    lines = [_line(map(_text, table.columns)), _line(rule), *(_line(map(_cell, row)) for row in table.rows)]
    return "\n".join(lines)


def _line(cells: Iterator[str] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    return f"{SIGNS[cell.tone]} {_text(cell.text)}".strip()


def _notes(table: Table) -> Iterator[str]:
    notes = [
        f"- {_text(', '.join(cell.text for cell in row[:2]))}; {_text(column)}: {_text(cell.note)}"
        for row in table.rows
        for column, cell in zip(table.columns, row, strict=True)
        if cell.note
    ]
    if notes:
        yield f"<details><summary>{plural(len(notes), 'note')} on this table</summary>"
        yield "\n".join(notes)
        yield "</details>"


def _paragraph(text: str) -> str:
    return _OPENING.sub(lambda found: f"&#{ord(found[0][0])};{found[0][1:]}", _text(text))


def _text(text: str) -> str:
    """One line in which nothing is markup."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", plain)
