"""The charts of a document as SVG and PNG files, in the page's light colours, without a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import vl_convert

from .document import Chart, Document
from .files import replace

WIDTH, SCALE = 520, 2.0
_INK, _SOFT, _LINE = "#1d2430", "#5b6573", "#dde1e7"
_TEXT = {"labelColor": _SOFT, "titleColor": _SOFT, "labelFontSize": 11, "titleFontSize": 11}
_CONFIG: dict[str, Any] = {
    "background": "#ffffff",
    "view": {"stroke": None},
    "title": {"color": _INK, "fontSize": 13, "anchor": "start"},
    "axis": {**_TEXT, "titleFontWeight": "normal", "gridColor": _LINE, "domainColor": _LINE, "tickColor": _LINE},
    "legend": {**_TEXT, "orient": "top"},
    "tick": {"color": _INK},
}


def write_charts(document: Document, folder: Path) -> tuple[Path, ...]:
    """Each chart as `<section>-<number>-<caption>.svg` and `.png`; the paths, in the order of the document.

    Raises:
        OSError: the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for section in document.sections:
        charts = [part for part in section.parts if isinstance(part, Chart)]
        for number, chart in enumerate(charts, 1):
            stem = f"{section.key}-{number:02d}-{_slug(chart.caption)}"
            svg = vl_convert.vegalite_to_svg(_whole(chart))
            replace(folder / f"{stem}.svg", svg.encode())
            replace(folder / f"{stem}.png", vl_convert.svg_to_png(svg, scale=SCALE))
            written += [folder / f"{stem}.svg", folder / f"{stem}.png"]
    return tuple(written)


def _whole(chart: Chart) -> dict[str, Any]:
    """The specification with its size, its title and its colours, which the page brings otherwise."""
    return {**chart.spec, "width": WIDTH, "title": chart.caption, "config": _CONFIG}


def _slug(text: str) -> str:
    """A name that is safe in any file system: letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "chart"
