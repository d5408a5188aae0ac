"""A document as one HTML page that needs no network: styles, script, charts and the chart library are in it."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from .data import finite
from .document import SIGNS, Chart, Document

_TEMPLATES = Path(__file__).parent / "templates"


def render(document: Document) -> str:
    """The page. Names may hold anything: all text is escaped, and only this page's own scripts may run in it."""
    charts = [part for section in document.sections for part in section.parts if isinstance(part, Chart)]
    scripts = [_own("page.js"), *([_library()] if charts else [])]
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
        specs=[finite(chart.spec) for chart in charts],
        signs=SIGNS,
        style=Markup(_own("page.css")),
        scripts=[Markup(script) for script in reversed(scripts)],
        hashes=" ".join(f"'sha256-{_digest(script)}'" for script in scripts),
    )


def _own(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed, as a script that defines `window.vegaEmbed`."""
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
