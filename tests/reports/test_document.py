"""What a report says: the answers follow from the records, and nothing unverified is printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from isorun.bench.records import Run
from isorun.reports.build import document, render
from isorun.reports.document import Document

from ..fakes import LAWS, LEARNED, MEMORY, fake_run
from .reading import charts, dots, records, said, tables, verdicts


@pytest.fixture(scope="module")
def run() -> Run:
    return fake_run()


@pytest.fixture(scope="module")
def made(run: Run) -> Document:
    return document(run)


def test_the_answer_comes_first_and_the_environment_last(made: Document) -> None:
    keys = [section.key for section in made.sections]
    middle = ["summary", "scaling", "decode", "latency", "parity", "memory", "claims", "contract"]
    assert keys == ["answers", *middle, "environment"]


def test_every_model_and_phase_has_one_verdict_row(made: Document) -> None:
    expected = {(model, "forward") for model in LAWS} | {(m, "decode step") for m, law in LAWS.items() if law.step}
    assert set(verdicts(made)) == expected


@pytest.mark.parametrize("model", ["transformer-base", "bert-base", "gpt2", "lstm"])
def test_the_speed_up_is_the_one_that_was_planted(made: Document, model: str) -> None:
    cell = verdicts(made)[model, "forward"]["ort-cpu: speed over torch"]
    assert cell.text.startswith("faster, ")
    assert cell.value == pytest.approx(LAWS[model].faster, rel=0.05)


def test_a_slower_runtime_is_called_slower(made: Document) -> None:
    assert verdicts(made)["mistral-7b", "decode step"]["ort-cpu: speed over torch"].text.startswith("slower, ")


def test_the_speed_up_is_at_the_longest_verified_length(made: Document) -> None:
    rows = verdicts(made)
    assert rows["gpt2", "decode step"]["ort-cpu: speed over torch"].text.endswith(", at n = 512")  # wrong at 1024
    assert " at n = " not in rows["gpt2", "forward"]["ort-cpu: speed over torch"].text


def test_wrong_outputs_are_named_with_their_distance(made: Document) -> None:
    assert verdicts(made)["gpt2", "decode step"]["ort-cpu: outputs"].text == "wrong, 3,100, at n = 1024"
    assert verdicts(made)["gpt2", "decode step"]["torch: outputs"].text == "right, 1.00"
    assert "ort-cpu on gpt2 @ small, decode step at n = 1024" in said(made)
    missing = tables(made, "latency")["Cases without a time"]
    (row,) = (row for row in records(missing) if row["status"].text == "not shown")
    assert (row["model"].text, row["n"].text, row["runtime"].text) == ("gpt2 @ small", "1024", "ort-cpu")
    assert "outputs wrong: time not shown" in row["reason"].text
    assert "3,100 times" in row["reason"].text


def test_the_time_of_wrong_outputs_is_printed_in_no_format(run: Run) -> None:
    (wrong,) = (m for m in run.measurements if m.errors and (m.errors[0].ratio or 0) > 3)
    alone = replace(run, measurements=(wrong,))
    for format in ("html", "md", "csv", "json"):
        text = render(alone, format).decode()
        assert not re.search(r"[0-9.]+ (ms|µs)\b", text.split("<script")[0]), format
        assert f"{wrong.median_ns / 1e6:.3g}" not in text.split("<script")[0].split("T09:")[0], format


def test_skipped_and_failed_cases_carry_their_reason(made: Document) -> None:
    missing = tables(made, "latency")["Cases without a time"]
    reasons = {(row["runtime"].text, row["n"].text): row["reason"].text for row in records(missing)}
    assert reasons["torch", "1024"] == LEARNED
    assert MEMORY in reasons.values()
    assert len(missing.rows) == 4
    assert "2 skipped and 1 failed" in said(made)
    assert LEARNED in said(made)


def test_exports_that_are_another_function_are_named(made: Document) -> None:
    assert verdicts(made)["mistral-7b", "forward"]["exports faithfully"].text == "no, 0.0041 > 1e-9"
    assert verdicts(made)["gpt2", "forward"]["exports faithfully"].text == "yes, 2.4e-13 ≤ 1e-9"
    assert "8 of 9 graphs compute the same function" in said(made)
    assert "another function: mistral-7b @ small, forward." in said(made)
    assert "batch independence of lstm @ small, forward (error)" in said(made)


def test_the_fitted_law_is_the_planted_one(made: Document) -> None:
    table = tables(made, "scaling")["The fitted law of each line"]
    (row,) = (row for row in records(table) if row["model"].text == "lstm @ small" and row["runtime"].text == "torch")
    assert row["c1 (per token)"].value == pytest.approx(LAWS["lstm"].forward[1], rel=0.03)
    assert row["of theory"].value == pytest.approx(1.0, abs=1e-6)  # FLOPs of the fake are c1·n exactly


def test_every_chart_shows_each_verified_point_and_no_other(run: Run, made: Document) -> None:
    ends = [point["x"] for spec in charts(made, "scaling", "decode").values() for point in dots(spec, -1)]
    shown = [m for m in run.measurements if m.status == "ok" and all((e.ratio or 0) <= 3 for e in m.errors)]
    assert sorted(ends) == sorted(m.case.length for m in shown)


def test_the_machine_and_the_matmul_rates_are_there(made: Document) -> None:
    rates = {
        row["runtime"].text: row["matmul (GFLOP/s)"].text
        for row in records(tables(made, "environment")["The runtimes"])
    }
    assert rates == {"torch": "107", "ort-cpu": "222", "ort-cuda": "not measured"}
    assert "comparison of those libraries" in said(made, "environment")
    machine = {row["what"].text: row["value"].text for row in records(tables(made, "environment")["The machine"])}
    assert machine["processor"] == "AMD EPYC 9R14"
    assert machine["memory"] == "24.0 GiB"


def test_the_json_document_is_strict(run: Run) -> None:
    inf = replace(run, header={**run.header, "elapsed_s": float("inf")})
    loaded = json.loads(render(inf, "json").decode(), parse_constant=lambda name: pytest.fail(name))
    assert loaded["header"]["elapsed_s"] is None
    assert len(loaded["measurements"]) == len(run.measurements)
    assert len(loaded["verdicts"]) == len(run.verdicts)


def test_an_unknown_format_is_refused_by_name(run: Run) -> None:
    with pytest.raises(ValueError, match=r"'pdf': take one of html, md, csv, json, parquet"):
        render(run, "pdf")


def test_reports_need_neither_torch_nor_a_runtime() -> None:
    code = "import sys, isorun.reports.build; print([m for m in ('torch', 'onnxruntime', 'onnx') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_curve_of_theory_is_the_work_scaled_to_the_last_point(made: Document) -> None:
    spec = charts(made, "scaling")["lstm @ small, forward"]
    points = {point["x"]: point["y"] for point in dots(spec, -1) if point["series"] == "torch"}
    curve = {node["x"]: node["y"] for node in dots(spec, 0) if (node["series"], node["curve"]) == ("torch", "theory")}
    assert curve == {
        n: pytest.approx(points[1024] * n / 1024, rel=1e-3) for n in (64, 128, 256, 512, 1024)
    }  # FLOPs are c1·n
