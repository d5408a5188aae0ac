"""A document as GitHub Markdown for a pull request: long tables folded, and at most so many lines.

What does not fit is named with its number of rows; the page and the data files have all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .document import SIGNS, Card, Cell, Chart, Document, Line, Section, Table
from .format import plural

LINES = 200
_LONG = 12  # rows beyond which a table is folded here
_MANY = 60  # models whose answers would leave no room for anything else
_SPECIAL = re.compile(r"([\\`*_\[\]|~$#])")
_OPENING = re.compile(r"^([-+=]|\d+(?=[.)]))")  # what starts a list or underlines a heading


@dataclass(frozen=True)
class _Block:
    """A paragraph or a table, and what may stand in its place where there is no room."""

    text: str
    short: str = ""

    @property
    def lines(self) -> int:
        return self.text.count("\n") + 2

    @property
    def saved(self) -> int:
        return self.lines - 2 if self.short else 0


def render(document: Document, page: str = "report.html", lines: int | None = LINES) -> str:
    """The document in at most `lines` lines (None: all of it); `page` is the address of the HTML page."""
    blocks = [_Block(f"# {_text(document.title)}"), *map(_paragraph, document.lead)]
    for section in document.sections:
        blocks += _section(section, page)
    return "\n\n".join(block.text for block in _fitted(blocks, lines)) + "\n"


def _fitted(blocks: list[_Block], lines: int | None) -> list[_Block]:
    """Put the longest tables away until the rest fits."""
    kept = list(blocks)
    while lines is not None and sum(block.lines for block in kept) > lines:
        longest = max(range(len(kept)), key=lambda place: kept[place].saved)
        if not kept[longest].saved:
            break
        kept[longest] = _Block(kept[longest].short)
    return kept


def _section(section: Section, page: str) -> Iterator[_Block]:
    yield _Block(f"## {_text(section.title)}")
    yield from map(_paragraph, section.lead)
    cards = [part for part in section.parts if isinstance(part, Card)]
    if cards:
        short = f"Answers on {plural(len(cards), 'model')}: in [the page]({page})." if len(cards) > _MANY else ""
        yield _Block(_answers(cards), short)
    charts = [_text(part.caption) for part in section.parts if isinstance(part, Chart)]
    if charts:
        yield _Block(f"Drawn in [the page]({page}): {'; '.join(charts)}.")
    for part in section.parts:
        if isinstance(part, Table):
            yield from [_facts(part)] if part.facts else _table(part, page)
    yield from map(_paragraph, section.notes)


def _answers(cards: Sequence[Card]) -> str:
    questions = list(dict.fromkeys(answer.question for card in cards for answer in card.answers))
    lines = [_line(["model", *map(_text, questions)]), _line(["---"] * (len(questions) + 1))]
    for card in cards:
        said = {answer.question: "<br>".join(map(_answer, answer.lines)) for answer in card.answers}
        lines.append(_line([_text(card.title), *(said.get(question, "") for question in questions)]))
    return "\n".join(lines)


def _answer(line: Line) -> str:
    label = f"{_text(line.label)}: " if line.label else ""
    return f"{label}{SIGNS[line.tone]} **{_text(line.head)}** {_text(line.detail)}".replace("  ", " ").strip()


def _facts(table: Table) -> _Block:
    known = "; ".join(": ".join(map(_cell, row)) for row in table.rows)
    return _Block(f"**{_text(table.caption)}**: {known}")


def _table(table: Table, page: str) -> Iterator[_Block]:
    caption = _text(table.caption)
    title = f"{caption} ({plural(len(table.rows), 'row')})"
    grid = f"{_grid(table)}\n\n{_notes(table)}".rstrip()
    folded = f"<details><summary>{title}</summary>\n\n{grid}\n\n</details>"
    long = len(table.rows) > _LONG and not table.open
    text = folded if table.folded or long else f"**{caption}**\n\n{grid}"
    yield _Block(text, f"{title}: in [the page]({page}).")


def _grid(table: Table) -> str:
    rule = ["---:" if numeric else "---" for numeric in table.numeric]
    lines = [_line(map(_text, table.columns)), _line(rule), *(_line(map(_cell, row)) for row in table.rows)]
    return "\n".join(lines)


def _line(cells: Iterator[str] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    return f"{SIGNS[cell.tone]} {_text(cell.text)}".strip()


def _notes(table: Table) -> str:
    """All notes of a table in one folded line; what a row says in several columns it says once."""
    columns: dict[tuple[str, str], list[str]] = {}
    for row in table.rows:
        for column, cell in zip(table.columns, row, strict=True):
            if cell.note:
                columns.setdefault((_named(row), _text(cell.note)), []).append(_text(column))
    notes = [f"{name}; {', '.join(found)}: {note}" for (name, note), found in columns.items()]
    said = "<br>".join(notes)
    return f"<details><summary>{plural(len(notes), 'note')} on this table</summary>{said}</details>" if notes else ""


def _named(row: Sequence[Cell]) -> str:
    """What a row is about: its first cells, as far as they are no answers."""
    return _text(", ".join(cell.text for cell in row[:2] if cell.tone == "plain"))


def _paragraph(text: str) -> _Block:
    return _Block(_OPENING.sub(lambda found: f"&#{ord(found[0][0])};{found[0][1:]}", _text(text)))


def _text(text: str) -> str:
    """One line in which nothing is markup."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", plain)
