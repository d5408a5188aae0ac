"""The report of a validation as a document: the verdict, all findings, and the tables behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from . import html
from .document import Cell, Document, Section, Table, Tone
from .format import plural

TONES: Mapping[str, Tone] = {"error": "bad", "fail": "bad", "note": "unsure", "skipped": "muted", "pass": "good"}
ANSWERS: Mapping[str, Tone] = {"same": "good", "differs": "bad", "refused": "bad"}
VERDICTS = {
    "pass": "It is what it should be, as far as it was asked.",
    "fail": "It is not what it should be.",
    "error": "A question could not be put, so nothing is vouched for.",
}
GRAPH = "graph and source"  # who is asked where no runtime is named


def page(report: Mapping[str, Any]) -> str:
    """One self-contained HTML page from what `Report.to_json` returns."""
    return html.render(document(report))


def document(report: Mapping[str, Any]) -> Document:
    """The sections: findings, shapes, layers; those without content are left out."""
    findings = report["findings"]
    counts = Counter(finding["status"] for finding in findings)
    summary = ", ".join(f"{count} {status}" for status, count in counts.items())
    lead = (f"{report['verdict']}: {VERDICTS[report['verdict']]}", f"{plural(len(findings), 'finding')}: {summary}")
    sections = [_findings(findings), *_shapes(findings), *_layers(findings)]
    return Document(f"isorun validate: {report['path']}", lead, tuple(sections))


def _findings(findings: list[Mapping[str, Any]]) -> Section:
    rows = tuple(
        (
            Cell(finding["status"], tone=TONES[finding["status"]]),
            Cell(finding["check"]),
            Cell(finding["says"]),
            Cell(finding["remedy"]),
        )
        for finding in findings
    )
    table = Table("One row a finding, the worst first", ("status", "check", "evidence", "remedy"), rows)
    return Section("findings", "Findings", (), (table,))


def _shapes(findings: list[Mapping[str, Any]]) -> Iterator[Section]:
    """A row for each size, a column for the graph in float64 and for each runtime."""
    asked: dict[str, dict[tuple[tuple[str, Any], ...], str]] = {}
    for finding in findings:
        for case in finding["data"].get("cases", ()):
            size = tuple((name, value) for name, value in case.items() if name != "answer")
            asked.setdefault(finding["data"]["of"] or GRAPH, {})[size] = case["answer"]
    sizes = list(dict.fromkeys(size for answers in asked.values() for size in answers))
    if not sizes:
        return
    axes = list(dict.fromkeys(name for size in sizes for name, _ in size))
    rows = tuple(
        (
            *(Cell(str(dict(size).get(axis, "")), _number(dict(size).get(axis))) for axis in axes),
            *(_answer(answers.get(size)) for answers in asked.values()),
        )
        for size in sizes
    )
    yield Section("shapes", "Shapes", (), (Table("One row a size and padding", (*axes, *asked), rows),))


def _layers(findings: list[Mapping[str, Any]]) -> Iterator[Section]:
    layers = [layer for finding in findings for layer in finding["data"].get("layers", ())]
    if not layers:
        return
    rows = tuple(
        (
            Cell(layer["layer"]),
            Cell(layer["value"]),
            Cell(f"{layer['error']:.2g}", layer["error"]),
            Cell(f"{layer['added']:.2g}", layer["added"]),
        )
        for layer in layers
    )
    lead = (
        "Relative errors in float64: of the layer's last value, and of its worst operator on the graph's own inputs.",
    )
    table = Table("One row a layer", ("layer", "last value", "error", "most added by one operator"), rows)
    yield Section("layers", "Error by layer", lead, (table,))


def _answer(answer: str | None) -> Cell:
    return Cell(answer or "not asked", tone=ANSWERS.get(answer or "", "muted"))


def _number(value: Any) -> float | str | None:
    return value if isinstance(value, int | float | str) else None
