"""A document as one HTML page that needs no network: styles, script, charts and the chart library are in it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from .chart import GLYPHS
from .data import finite
from .document import SIGNS, Cell, Chart, Document, Table
from .format import memory

_LONG = 60_000  # characters of a folded table beyond which it is kept compressed
_SHORT = 44  # characters of a text that is never broken
_TEMPLATES = Path(__file__).parent / "templates"


def render(document: Document) -> str:
    """The page. Names may hold anything: all text is escaped, and only this page's own scripts may run in it."""
    charts = [part for section in document.sections for part in section.parts if isinstance(part, Chart)]
    library = _library() if charts else ""
    if library is None:
        return render(_without_charts(document))
    scripts = [_own("page.js"), *([library] if library else [])]
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        document=document,
        charts=charts,
        choices=_choices(document.facets),
        anchors=_Anchors(),
        files=[(file, _squeezed(file.content), memory(len(file.content))) for file in document.attachments],
        specs=_squeezed(json.dumps(finite([chart.spec for chart in charts]))),
        packed=_packed,
        cells=_cells,
        signs=SIGNS,
        glyphs=GLYPHS,
        style=Markup(_own("page.css")),
        scripts=[Markup(script) for script in reversed(scripts)],
        hashes=" ".join(f"'sha256-{_digest(script)}'" for script in scripts),
    )


class _Anchors:
    """Which places of the page can be linked to: the first that is about a group in each section."""

    def __init__(self) -> None:
        self._taken: set[tuple[str, int]] = set()

    def first(self, section: str, group: int) -> bool:
        """Whether this place is the one."""
        if (section, group) in self._taken:
            return False
        self._taken.add((section, group))
        return True


def _choices(facets: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """What can be chosen: the values of each facet that has more than one."""
    names = dict.fromkeys(name for facet in facets for name in facet)
    found = {name: list(dict.fromkeys(facet[name] for facet in facets)) for name in names}
    return {name: values for name, values in found.items() if len(values) > 1}


def _cells(row: Sequence[Cell], numeric: Sequence[bool]) -> Markup:
    """The cells of a row; in Python, because a long table has tens of thousands of them."""
    return Markup("\n").join(
        _cell(place, cell, number) for place, (cell, number) in enumerate(zip(row, numeric, strict=True))
    )


def _cell(place: int, cell: Cell, number: bool) -> Markup:
    tag, scope = ("td", "") if place else ("th", ' scope="row"')
    kinds = [cell.tone, "number" if number else "line" if len(cell.text) < _SHORT else ""]
    shown = isinstance(cell.value, int | float)
    value = f' data-value="{cell.value}"' if shown else ""
    shade = "" if cell.shade is None else f' data-shade="{round(cell.shade * 9)}"'
    opening = f'<{tag}{scope} class="{" ".join(filter(None, kinds))}"{value}{shade}>'
    return Markup("{}{}</{}>").format(Markup(opening), _inside(cell, shown), Markup(tag))


def _inside(cell: Cell, shown: bool) -> Markup:
    """The text with its sign, a number's parts each on a line, and the note behind it."""
    sign = SIGNS[cell.tone]
    text = Markup('<span class="sign" aria-hidden="true">{}</span>&nbsp;').format(sign) if sign else Markup()
    pieces = cell.text.split(", ") if shown else [cell.text]
    if len(pieces) > 1:
        comma = Markup('<span class="comma">, </span></span>')
        text += comma.join(Markup('<span class="piece">{}').format(piece) for piece in pieces) + Markup("</span>")
    else:
        text += escape(cell.text)
    if not cell.note:
        return text
    lines = Markup(";<br> ").join(cell.note.split("; "))
    return Markup('<details class="note"><summary>{}</summary><p>{}</p></details>').format(text, lines)


def _squeezed(content: str | bytes) -> str:
    """Compressed, and as text that may stand in an attribute."""
    data = content.encode("utf-8", errors="replace") if isinstance(content, str) else content
    return base64.b64encode(gzip.compress(data, mtime=0)).decode()


def _packed(table: Table, html: Markup) -> Markup:
    """The HTML of a table as it is, or, of one that is long and folded, compressed until it is opened."""
    if not table.folded or len(html) < _LONG:
        return html
    return Markup('<div class="packed" data-html="{}"></div>').format(_squeezed(str(html)))


def _own(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _library() -> str | None:
    """Vega, Vega-Lite and Vega-Embed, as a script that defines `window.vegaEmbed`; None where it cannot be made."""
    try:
        return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    except BaseException as error:  # it panics on a Linux without /proc, and a panic is no Exception
        if type(error).__name__ != "PanicException":
            raise
        return None


def _without_charts(document: Document) -> Document:
    """The same document, saying that charts are missing: every number in them is in the tables too."""
    sections = tuple(
        replace(section, parts=tuple(part for part in section.parts if not isinstance(part, Chart)))
        for section in document.sections
    )
    missing = "The charts are left out: the library that draws them does not run on this system (is /proc there?)."
    return replace(document, lead=(*document.lead, missing), sections=sections)


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
