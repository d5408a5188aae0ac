"""The matrix of support says yes, no or nothing as the records do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from isorun.bench.records import Measurement, Run
from isorun.reports.document import Cell, Table
from isorun.reports.support import matrix

from ..fakes import MEMORY, WINDOW, fake_run


def cells(*runs: Run) -> dict[tuple[str, str], dict[str, Cell]]:
    """Rows by runtime and model."""
    found = {}
    for section in matrix(runs).sections:
        for table in section.parts:
            assert isinstance(table, Table)
            for row in table.rows:
                found[section.title, row[0].text] = dict(zip(table.columns, row, strict=True))
    return found


def with_cases(run: Run, **changed: object) -> Run:
    """Every case of a run with other values in its identity."""
    return replace(run, measurements=tuple(replace(m, case=replace(m.case, **changed)) for m in run.measurements))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run() -> Run:
    return fake_run()


def test_what_ran_right_is_supported(run: Run) -> None:
    found = cells(run)
    assert found["ort-cpu", "lstm"]["forward"].text == "yes"
    assert found["torch", "gpt2"]["decode step"].text == "yes"
    assert found["torch", "bert-base"]["decode step"].text == "–"  # an encoder has none
    assert (
        found["torch", "bert-base"]["free sequence"].text == "yes"
    )  # the length that its table ends before is no fault
    assert "fp16" not in found["torch", "lstm"]  # nobody tried


def test_what_failed_or_was_wrong_is_not_and_says_why(run: Run) -> None:
    found = cells(run)
    assert (found["ort-cpu", "mistral-7b"]["forward"].text, found["ort-cpu", "mistral-7b"]["forward"].note) == (
        "no",
        MEMORY,
    )
    wrong = found["ort-cpu", "gpt2"]["decode step"]
    assert wrong.text == "no"
    assert "outputs wrong" in wrong.note
    assert found["torch", "gpt2"]["decode step"].text == "yes"


def test_an_axis_is_free_when_it_ran_at_two_sizes(run: Run) -> None:
    assert "free batch" not in cells(run)["torch", "lstm"]
    both = cells(run, with_cases(run, batch=3))
    assert both["torch", "lstm"]["free batch"].text == "yes"
    three = with_cases(run, batch=3)
    failed = tuple(
        Measurement(case=m.case, status="failed", reason="batch must be 1") if m.case.runtime == "torch" else m
        for m in three.measurements
    )
    fixed = cells(run, replace(three, measurements=failed))["torch", "lstm"]["free batch"]
    assert (fixed.text, fixed.note) == ("no", "batch must be 1")
    assert cells(run, three)["ort-cpu", "lstm"]["free batch"].text == "yes"


def test_precisions_have_columns_of_their_own(run: Run) -> None:
    found = cells(run, with_cases(run, dtype="int4"))
    assert found["torch", "lstm"]["int4"].text == "yes"
    assert found["ort-cpu", "mistral-7b"]["int4"].note == MEMORY


def test_an_empty_past_is_asked_of_steps_alone(run: Run) -> None:
    found = cells(with_cases(run, past=0))
    assert found["torch", "gpt2"]["empty past"].text == "yes"
    assert found["torch", "bert-base"]["empty past"].text == "–"


def test_padding_is_the_word_of_the_graph(run: Run) -> None:
    padded = tuple(replace(v, detail=f"left padding: {v.detail}") for v in run.verdicts)
    found = cells(replace(run, verdicts=padded))
    assert found["torch", "lstm"]["padding"].text == "yes"
    assert (found["ort-cpu", "mistral-7b"]["padding"].text, WINDOW in found["torch", "mistral-7b"]["padding"].note) == (
        "no",
        True,
    )


def test_opsets_come_from_the_graphs(run: Run) -> None:
    facts = [{"model": "lstm", "opset": 23}, {"model": "lstm", "opset": 18}, {"model": "gpt2", "opset": "new"}, 3]
    found = cells(replace(run, header={**run.header, "exports": facts}))
    assert found["torch", "lstm"]["opset"].text == "18, 23"
    assert found["torch", "gpt2"]["opset"].text == "–"


def test_a_precision_that_a_runtime_does_not_run_has_its_reason(run: Run) -> None:
    eight = with_cases(run, dtype="int8").measurements
    none = "torch runs the source, and only the graph is int8"
    left = [replace(m, status="skipped", reason=none) if m.case.runtime == "torch" else m for m in eight]
    made = {
        section.title: section for section in matrix([replace(run, measurements=(*run.measurements, *left))]).sections
    }
    assert made["torch"].lead == (f"Not tried, int8: {none}.",)
    assert made["ort-cpu"].lead == ()
    assert "int8" not in made["torch"].parts[0].columns  # type: ignore[union-attr]
    assert "int8" in made["ort-cpu"].parts[0].columns  # type: ignore[union-attr]


def test_versions_are_those_of_all_runs(run: Run) -> None:
    def ran(versions: object) -> Run:
        return replace(run, header={**run.header, "environment": {"versions": versions}})

    (lead,) = matrix(
        [ran({"torch": "2.13.0", "onnx": "1.23"}), ran({"torch": "2.14.0"}), ran("odd"), ran({3: [4]})]
    ).lead
    assert "with torch 2.13.0 or 2.14.0, onnx 1.23" in lead
    assert "with" not in matrix([ran(None)]).lead[0]


def test_a_runtime_that_nothing_ran_on_has_its_reason(run: Run) -> None:
    absent = tuple(
        Measurement(case=replace(m.case, runtime="ort-cuda"), status="skipped", reason="no CUDA device")
        for m in run.measurements
    )
    (section,) = (part for part in matrix([replace(run, measurements=absent)]).sections)
    assert (section.title, section.lead, section.parts) == ("ort-cuda", ("Not run: no CUDA device.",), ())
