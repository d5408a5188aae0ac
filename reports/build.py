"""From a run to its report: the views make the document once, the formats only render it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from ..bench import benchmark_file
from ..bench.records import Run, to_line
from . import data, html, markdown
from .chart import colours
from .document import Attachment, Document
from .files import replace
from .format import listing, moment, plain, plural
from .series import facets, runtimes
from .views import VIEWS

SAMPLES = 60_000  # raw samples that a page carries, about 0.4 MB; more stay in the run folder
FORMATS: Mapping[str, Callable[[Run], bytes]] = {
    "html": lambda run: encoded(html.render(document(run))),
    "md": lambda run: encoded(markdown.render(document(run))),
    "csv": lambda run: encoded(data.to_csv(run)),
    "json": lambda run: encoded(data.to_json(run)),
    "parquet": data.to_parquet,
    "pytest-benchmark": lambda run: encoded(benchmark_file.write(run)),
}


def document(run: Run) -> Document:
    """What there is to say about a run."""
    sections = tuple(section for view in VIEWS if (section := view(run)))
    name = plain(run.header.get("name"))
    return Document(
        title=f"isorun report: {name}" if name else "isorun report",
        lead=tuple(_lead(run)),
        sections=sections,
        facets=facets(run),
        series=colours(runtimes(run)),
        attachments=_attachments(run),
    )


def _attachments(run: Run) -> tuple[Attachment, ...]:
    """What the page carries: the table, everything as JSON, and the raw samples."""
    if not run.measurements:
        return ()
    files = [
        Attachment("measurements.csv", "text/csv", encoded(data.to_csv(run))),
        Attachment("report.json", "application/json", encoded(data.to_json(run))),
    ]
    samples = sum(len(block) for m in run.measurements for block in m.blocks_ns)
    if samples <= SAMPLES:
        lines = [*map(to_line, run.verdicts), *map(to_line, run.measurements)]
        records = "".join(f"{line}\n" for line in lines)
        files.append(Attachment("records.jsonl", "application/jsonl", encoded(records)))
    return tuple(files)


def encoded(text: str) -> bytes:
    """Text as UTF-8; what that cannot hold, as half of a surrogate pair in a name, becomes a question mark."""
    return text.encode("utf-8", errors="replace")


def render(run: Run, format: str) -> bytes:
    """A run in one of the `FORMATS`; text is UTF-8.

    Raises:
        ValueError: there is no such format.
        ReportError: what the format needs is not installed.
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
    replace(page, encoded(html.render(made)))
    replace(folder / "report.md", encoded(markdown.render(made, page.name)))
    replace(folder / "measurements.csv", encoded(data.to_csv(run)))
    return page


def _lead(run: Run) -> list[str]:
    """When, where and how much: one paragraph, and a warning when the run is not whole."""
    header, machine = run.header, plain(run.environment.get("processor"))
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
