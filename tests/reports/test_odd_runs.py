"""Runs that are cut short, partly empty, unusual or damaged still give a report that says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from isorun.bench.records import Measurement, Run
from isorun.reports.build import document, render
from isorun.reports.document import Document

from ..fakes import LAWS, fake_case, fake_run
from .reading import charts, facts, records, said, tables, verdicts


@pytest.fixture(scope="module")
def run() -> Run:
    return fake_run()


@pytest.fixture(scope="module")
def made(run: Run) -> Document:
    return document(run)


def test_unchecked_outputs_have_no_time(run: Run) -> None:
    unchecked = replace(run, measurements=tuple(replace(m, errors=()) for m in run.measurements))
    made = document(unchecked)
    assert "scaling" not in [section.key for section in made.sections]
    assert list(tables(made, "latency")) == ["Cases without a time"]
    assert {row["torch: outputs"].text for row in verdicts(made).values()} == {"not checked"}


def test_a_finished_case_without_samples_shows_nothing(run: Run) -> None:
    empty = replace(run, measurements=tuple(replace(m, blocks_ns=()) for m in run.measurements if m.status == "ok"))
    assert not {"latency", "scaling"} & {section.key for section in document(empty).sections}


def test_one_runtime_alone_has_no_speed_up(run: Run) -> None:
    alone = replace(run, measurements=tuple(m for m in run.measurements if m.case.runtime == "ort-cpu"))
    made = document(alone)
    assert not any("speed over" in column for row in verdicts(made).values() for column in row)
    assert "faster" not in said(made)


def test_a_case_measured_twice_counts_once(run: Run, made: Document) -> None:
    first = next(m for m in run.measurements if m.status == "ok")
    failed = replace(first, status="failed", reason="died", blocks_ns=(), errors=())
    again = replace(run, measurements=(failed, *run.measurements))
    assert tables(document(again), "latency") == tables(made, "latency")


def test_only_skipped_cases_still_make_a_report(run: Run) -> None:
    skipped = tuple(Measurement(case=m.case, status="skipped", reason="no memory") for m in run.measurements)
    made = document(replace(run, measurements=skipped))
    assert [section.key for section in made.sections] == [
        "answers",
        "summary",
        "latency",
        "parity",
        "claims",
        "environment",
    ]
    assert "84 skipped: no memory (and 83 more like it)." in said(made)


def test_an_interrupted_run_says_so(run: Run) -> None:
    header = {key: value for key, value in run.header.items() if key != "elapsed_s"} | {"finished": None}
    part = replace(run, header=header, measurements=run.measurements[:3], verdicts=(), problems=("line 4: cut",))
    made = document(part)
    assert any("did not finish" in paragraph for paragraph in made.lead)
    assert tables(made, "environment")["Records that could not be read"].rows[0][0].text == "line 4: cut"
    assert {row["torch: growth"].text for row in verdicts(made).values()} == {"too little data"}


@pytest.mark.parametrize("key", ["name", "created", "suite", "environment", "finished", "elapsed_s", "isorun"])
def test_a_missing_header_key_leaves_its_rows_out(run: Run, key: str) -> None:
    header = {name: value for name, value in run.header.items() if name != key}
    bare = replace(run, header=header, measurements=())
    for format in ("html", "md", "csv", "json"):
        assert render(bare, format)
    whole, rows = (facts(document(chosen)) for chosen in (run, bare))
    assert rows < whole


@pytest.mark.parametrize("value", [None, 3, "text", [1, {"a": None}], {"b": [2]}])
def test_odd_header_values_are_shown_and_never_fatal(run: Run, value: object) -> None:
    environment = dict.fromkeys(("threads", "versions", "matmul_gflops", "runtimes_missing", "memory_bytes"), value)
    made = document(replace(run, header={"schema": 1, "name": value, "suite": value, "environment": environment}))
    assert made.title


def test_an_empty_run_says_that_there_is_nothing() -> None:
    empty = Run(folder=Path(), header={})
    assert document(empty).sections == ()
    assert "nothing to report" in render(empty, "html").decode()


def test_unequal_numbers_of_blocks_are_still_compared(run: Run) -> None:
    cut = tuple(replace(m, blocks_ns=m.blocks_ns[:5]) if m.case.runtime == "torch" else m for m in run.measurements)
    cell = verdicts(document(replace(run, measurements=cut)))["gpt2", "forward"]["ort-cpu: speed over torch"]
    assert cell.value == pytest.approx(LAWS["gpt2"].faster, rel=0.05)


def test_batches_and_types_are_told_apart(run: Run) -> None:
    case = replace(fake_case(n=64), batch=4)
    extra = replace(next(m for m in run.measurements if m.case == fake_case(n=64)), case=case)
    labels = {
        row["phase"].text for row in verdicts(document(replace(run, measurements=(*run.measurements, extra)))).values()
    }
    assert {"forward, batch 1", "forward, batch 4", "decode step, batch 1"} == labels


def test_one_block_has_no_interval_and_still_a_chart(run: Run) -> None:
    single = replace(run, measurements=tuple(replace(m, blocks_ns=m.blocks_ns[:1]) for m in run.measurements))
    made = document(single)
    assert {row["ort-cpu: speed over torch"].text.split(",")[0] for row in verdicts(made).values()} == {"cannot tell"}
    values = json.dumps(charts(made, "scaling", "decode"))
    assert "Infinity" not in values
    assert '"low": 0.0' not in values


def test_an_empty_past_is_a_row_but_no_point_on_a_logarithmic_axis(run: Run) -> None:
    start = next(m for m in run.measurements if m.case == fake_case(phase="step", n=128))
    extra = replace(start, case=fake_case(phase="step", n=0))
    made = document(replace(run, measurements=(*run.measurements, extra)))
    rows = records(tables(made, "latency")["Time of a call, decode step"])
    assert ("gpt2 @ small", 0) in {(row["model"].text, row["n (cached tokens)"].value) for row in rows}
    values = json.dumps(charts(made, "decode"))
    assert '"x": 0' not in values


def test_a_time_that_is_not_positive_is_not_shown(run: Run) -> None:
    first = next(m for m in run.measurements if m.status == "ok")
    broken = replace(run, measurements=(replace(first, blocks_ns=((0,), (5,), (7,))),))
    (row,) = records(tables(document(broken), "latency")["Cases without a time"])
    assert row["reason"].text == "a recorded time is not positive: time not shown"


def test_a_runtime_that_is_not_installed_has_a_reason_and_no_column(run: Run) -> None:
    absent = [
        Measurement(case=replace(m.case, runtime="ort-cuda"), status="skipped", reason="no CUDA device")
        for m in run.measurements
        if m.case.runtime == "torch"
    ]
    made = document(replace(run, measurements=(*run.measurements, *absent)))
    assert not any("ort-cuda" in column for row in verdicts(made).values() for column in row)
    assert "no CUDA device (and 41 more like it)" in said(made)
    missing = records(tables(made, "latency")["Cases without a time"])
    assert next(row["n"].text for row in missing if row["runtime"].text == "ort-cuda") == "64, 128, 256, 512, 1024"


def test_an_export_that_failed_is_not_called_unchecked(run: Run) -> None:
    failed = tuple(
        Measurement(case=m.case, status="failed", reason="export failed: no such operator") for m in run.measurements
    )
    made = document(replace(run, measurements=failed, verdicts=()))
    cells = [row["exports faithfully"] for row in verdicts(made).values()]
    assert {(cell.text, cell.tone) for cell in cells} == {("failed", "bad")}
    assert {cell.note for cell in cells} == {"export failed: no such operator"}
