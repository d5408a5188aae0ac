"""A run as data: rows, laws, their schema, and the charts as files."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from isorun.bench.records import OutputError, Run, from_line
from isorun.reports.build import document
from isorun.reports.build import render as encoded
from isorun.reports.columns import NAMES
from isorun.reports.data import ReportError
from isorun.reports.pictures import write_charts
from isorun.reports.schema import schema

from ..fakes import fake_run


def render(run: Run, format: str) -> str:
    return encoded(run, format).decode()


@pytest.fixture(scope="module")
def run() -> Run:
    return fake_run()


def rows_of(run: Run) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render(run, "csv"))))


def test_csv_has_one_row_a_measurement(run: Run) -> None:
    rows = rows_of(run)
    assert tuple(rows[0]) == NAMES
    assert len(rows) == len(run.measurements)
    for row, m in zip(rows, run.measurements, strict=True):
        case = m.case
        assert (row["model"], row["runtime"]) == (case.model, case.runtime)
        assert (row["seq"], row["past"]) == (str(case.seq), str(case.past))
        if row["median_ms"]:
            medians = sorted(sorted(block)[2] for block in m.blocks_ns)  # five calls a block, seven blocks
            assert float(row["median_ms"]) == pytest.approx(medians[3] / 1e6, rel=1e-5)
            assert float(row["low_ms"]) <= float(row["median_ms"]) <= float(row["high_ms"])
            assert float(row["tokens_per_s"]) == pytest.approx(m.case.seq / (medians[3] / 1e9), rel=1e-5)
            assert (row["blocks"], row["calls"]) == ("7", "35")
            assert row["peak_bytes"] == str(m.peak_bytes)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_cells_are_never_formulas(run: Run, start: str) -> None:
    attack = f'{start}HYPERLINK("x")'
    m = run.measurements[0]
    assert m.placement is not None
    planted = replace(
        m,
        case=replace(m.case, model=attack, size=attack, phase=attack, dtype=attack, runtime=attack),
        status="failed",
        reason=attack,
        placement=replace(m.placement, provider=attack, precision=attack),
    )
    text = render(replace(run, measurements=(planted,)), "csv")
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    assert cells.count(f"'{attack}") == 8
    assert not any(cell.startswith(start) for cell in cells)


def test_an_output_that_cannot_be_compared_is_infinitely_wrong(run: Run) -> None:
    broken = OutputError(name="logits", rms=None, max_abs=None, scale=1.0, ruler_rms=1e-7, detail="NaN at 3 places")
    m = replace(next(m for m in run.measurements if m.status == "ok"), errors=(broken,))
    row = rows_of(replace(run, measurements=(m,)))[0]
    assert (row["worst_error_ratio"], row["median_ms"]) == ("inf", "")
    assert "NaN at 3 places" in row["reason"]


def test_the_page_carries_its_data(run: Run) -> None:
    packed = dict(re.findall(r'data-name="([^"]+)"[^>]*base64,([^"]+)"', render(run, "html")))
    files = {name: gzip.decompress(base64.b64decode(text)).decode() for name, text in packed.items()}
    assert files["measurements.csv"] == render(run, "csv")
    assert files["report.json"] == render(run, "json")
    assert [from_line(line) for line in files["records.jsonl"].splitlines()] == [*run.verdicts, *run.measurements]


def test_the_json_document_is_of_its_published_schema(run: Run) -> None:
    published = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text())
    assert published == schema()
    for made in (run, Run(folder=Path(), header={})):
        jsonschema.validate(json.loads(render(made, "json")), published, cls=jsonschema.Draft202012Validator)
    broken = json.loads(render(run, "json"))
    broken["measurements"][0]["batch"] = "one"
    with pytest.raises(jsonschema.ValidationError, match="'one' is not of type 'integer'"):
        jsonschema.validate(broken, published)


def test_the_json_laws_are_the_planted_ones(run: Run) -> None:
    laws = {(law["model"], law["phase"], law["runtime"]): law for law in json.loads(render(run, "json"))["laws"]}
    assert laws["lstm", "forward", "torch"]["c1_ns"] == pytest.approx(61e3, rel=0.03)
    low, high = laws["lstm", "forward", "torch"]["c1_ns_interval"]
    assert low < 61e3 < high


def test_the_parquet_file_has_the_rows_of_the_csv_with_units(run: Run) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(io.BytesIO(encoded(run, "parquet")))
    assert tuple(table.column_names) == NAMES
    assert table.schema.field("median_ms").metadata[b"unit"] == b"ms"
    for row, wanted in zip(table.to_pylist(), rows_of(run), strict=True):
        assert (row["model"], str(row["seq"]), row["reason"] or "") == (
            wanted["model"],
            wanted["seq"],
            wanted["reason"],
        )
        assert row["median_ms"] == (
            pytest.approx(float(wanted["median_ms"]), rel=1e-5) if wanted["median_ms"] else None
        )


def test_without_pyarrow_parquet_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ReportError, match=r"install the extra, pip install 'isorun\[parquet\]'"):
        encoded(run, "parquet")


def test_charts_are_files_of_both_kinds_with_safe_names(run: Run, tmp_path: Path) -> None:
    few = replace(run, measurements=tuple(m for m in run.measurements if m.case.model == "gpt2"))
    named = tuple(replace(m, case=replace(m.case, model="../<b>Ж")) for m in few.measurements)
    written = write_charts(document(replace(few, measurements=named)), tmp_path / "charts")
    assert [path.name for path in written] == [
        f"{section}-01-b-small-{phase}.{kind}"
        for section, phase in (("scaling", "forward"), ("decode", "decode-step"))
        for kind in ("svg", "png")
    ]
    for path in written:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG" if path.suffix == ".png" else b"<svg")
        assert b"<b>" not in content
