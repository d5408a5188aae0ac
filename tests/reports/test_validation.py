"""The page of a validation: the verdict, the findings, the shapes and the layers, with every name escaped."""

from __future__ import annotations

from typing import Any

import pytest

from isorun.bench.validate.finding import Finding, report
from isorun.reports.document import Document, Table
from isorun.reports.validation import document, page

EVIL = "<script>alert(1)</script>"
CASES = [
    {"batch": 1, "sequence": 7, "padding": "none", "answer": "same"},
    {"batch": 3, "sequence": 7, "padding": "left", "answer": "differs"},
]
FINDINGS = [
    Finding(check="integrity", status="pass", says="all weights are there"),
    Finding(check="semantics", status="fail", says=f"{EVIL} differs", remedy="export it again",
            data={"of": "", "cases": CASES, "wrong": [], "sizes": {}, "padding": "none"}),
    Finding(check="shapes", status="pass", says="agrees", data={"of": "ort-cpu", "cases": CASES[:1]}),
    Finding(check="numerics", status="pass", says="by layer",
            data={"layers": [{"layer": "m.layers.0", "value": "v", "error": 0.0123, "added": 0.01}]}),
]  # fmt: skip


@pytest.fixture(scope="module")
def made() -> Document:
    return document(report(f"{EVIL}.onnx", FINDINGS).to_json())


def cells(made: Document, key: str) -> list[list[str]]:
    (section,) = (section for section in made.sections if section.key == key)
    (table,) = section.parts
    assert isinstance(table, Table)
    return [[cell.text for cell in row] for row in table.rows]


def test_the_verdict_comes_first_and_the_worst_finding_on_top(made: Document) -> None:
    assert made.lead[0].startswith("fail:")
    rows = cells(made, "findings")
    assert rows[0] == ["fail", "semantics", f"{EVIL} differs", "export it again"]
    assert len(rows) == 4


def test_shapes_have_a_column_for_whoever_was_asked(made: Document) -> None:
    assert cells(made, "shapes") == [
        ["1", "7", "none", "same", "same"],
        ["3", "7", "left", "differs", "not asked"],
    ]


def test_layers(made: Document) -> None:
    assert cells(made, "layers") == [["m.layers.0", "v", "0.012", "0.01"]]


def test_names_cannot_become_markup() -> None:
    text = page(report(f"{EVIL}.onnx", FINDINGS).to_json())
    assert EVIL not in text
    assert "&lt;script&gt;alert(1)" in text


@pytest.mark.parametrize("verdict", ["pass", "error"])
def test_sections_without_content_are_left_out(verdict: Any) -> None:
    only = document(report("m.onnx", [Finding(check="inputs", status=verdict, says="")]).to_json())
    assert [section.key for section in only.sections] == ["findings"]
    assert only.lead[0].startswith(verdict)
