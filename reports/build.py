"""From a run to its report: the views make the document once, the formats only render it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from ..bench.records import Run
from . import data, html, markdown
from .document import Document
from .format import listing, moment, plain, plural
from .views import VIEWS

FORMATS: Mapping[str, Callable[[Run], str]] = {
    "html": lambda run: html.render(document(run)),
    "md": lambda run: markdown.render(document(run)),
    "csv": data.to_csv,
    "json": data.to_json,
}


def document(run: Run) -> Document:
    """What there is to say about a run."""
    sections = tuple(section for view in VIEWS if (section := view(run)))
    name = plain(run.header.get("name"))
    return Document(f"isorun report: {name}" if name else "isorun report", tuple(_lead(run)), sections)


def render(run: Run, format: str) -> str:
    """A run as text in one of the `FORMATS`.

    Raises:
        ValueError: there is no such format.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}: take one of {', '.join(FORMATS)}")
    return FORMATS[format](run)


def write(run: Run, folder: Path) -> Path:
    """Write `report.html`, `report.md` and `measurements.csv`, each whole or not at all; the path of the page.

    Raises:
        OSError: the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = document(run)
    page = folder / "report.html"
    _replace(page, html.render(made))
    _replace(folder / "report.md", markdown.render(made, page.name))
    _replace(folder / "measurements.csv", data.to_csv(run))
    return page


def _replace(path: Path, text: str) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8", errors="replace", newline="")  # a name may hold what UTF-8 cannot
    part.replace(path)


def _lead(run: Run) -> list[str]:
    """When, where and how much: one paragraph, and a warning when the run is not whole."""
    header, environment = run.header, run.header.get("environment")
    machine = plain(environment.get("processor")) if isinstance(environment, Mapping) else ""
    version = plain(header.get("isorun"))
    counts = Counter(m.status for m in run.measurements)
    cases = listing([f"{count} {status}" for status, count in counts.items()]) if counts else "none measured"
    facts = (
        f"isorun {version}" if version else "",
        f"started {moment(plain(header.get('created')))}" if header.get("created") else "",
        f"on {machine}" if machine else "",
        f"{plural(len(run.measurements), 'case')}: {cases}",
    )
    lead = [" · ".join(fact for fact in facts if fact)]
    if "finished" in header and not header["finished"]:
        lead.append("This run did not finish: the report shows what was recorded until then.")
    if run.problems:
        lead.append(f"{plural(len(run.problems), 'record')} could not be read; see Environment.")
    return lead
