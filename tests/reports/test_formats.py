"""One content, several formats: nothing is lost, nothing in a name is ever markup, script or formula."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
from markdown_it import MarkdownIt

from isorun.bench.records import OutputError, Run, Verdict, from_line
from isorun.reports import markdown
from isorun.reports.build import document, write
from isorun.reports.build import render as encoded
from isorun.reports.columns import NAMES
from isorun.reports.data import ReportError
from isorun.reports.document import Card, Chart, Document, Table
from isorun.reports.pictures import write_charts
from isorun.reports.schema import schema

from ..fakes import fake_run

TAGS = {
    "h1",
    "h2",
    "p",
    "strong",
    "a",
    "br",
    "details",
    "summary",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "ul",
    "li",
}
FETCHING = ("src", "href", "action", "srcset", "data", "poster")
HOSTILE = "<script>alert(1)</script>|`x`*y*[z](javascript:alert(2))\n</script><!-- \u2028 &amp; \"quoted' \\"


def render(run: Run, format: str) -> str:
    return encoded(run, format).decode()


class Page(HTMLParser):
    """Tags with their attributes, and the text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        (self.scripts if self.cdata_elem else self.words).append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


@pytest.fixture(scope="module")
def run() -> Run:
    return fake_run()


@pytest.fixture(scope="module")
def hostile(run: Run) -> Run:
    """Every name of a run that comes from outside is an attack."""
    measurements = tuple(
        replace(
            m,
            case=replace(m.case, model=HOSTILE, runtime=HOSTILE if m.case.runtime != "torch" else "torch"),
            reason=m.reason and HOSTILE,
            errors=tuple(replace(error, name=HOSTILE, detail=HOSTILE) for error in m.errors),
        )
        for m in run.measurements
        if m.case.model in ("gpt2", "bert-base")
    )
    names = dict.fromkeys(("model", "size", "phase", "dtype", "check", "detail"), HOSTILE)
    verdict = Verdict(**names, status="fail", distance=1.0, limit=0.0)  # type: ignore[arg-type]
    header = {"schema": 1, "name": HOSTILE, "environment": {HOSTILE: HOSTILE}, "suite": {"models": [HOSTILE]}}
    return replace(run, header=header, measurements=measurements, verdicts=(verdict,), problems=(HOSTILE,))


@pytest.fixture(scope="module")
def page(run: Run) -> str:
    return render(run, "html")


def texts(made: Document) -> Iterator[str]:
    """Every piece of text of a document."""
    yield from (made.title, *made.lead)
    for section in made.sections:
        yield from (section.title, *section.lead, *section.notes)
        for part in section.parts:
            yield from _of(part)


def _of(part: Table | Chart | Card) -> Iterator[str]:
    if isinstance(part, Card):
        yield part.title
        for answer in part.answers:
            yield from (
                answer.question,
                *(text for line in answer.lines for text in (line.label, line.head, line.detail)),
            )
        return
    yield part.caption
    if isinstance(part, Table):
        yield from () if part.facts else part.columns
        yield from (text for row in part.rows for cell in row for text in (cell.text, cell.note))


def parts(made: Document) -> list[Table | Chart | Card]:
    return [part for section in made.sections for part in section.parts]


def whole(run: Run) -> str:
    """The Markdown of a run without a limit of lines."""
    return markdown.render(document(run), lines=None)


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", ["run", "hostile"])
def test_the_page_says_all_of_the_document(name: str, request: pytest.FixtureRequest) -> None:
    chosen = request.getfixturevalue(name)
    page = Page(render(chosen, "html")).text
    assert [text for text in texts(document(chosen)) if one_line(text) not in page] == []


@pytest.mark.parametrize("name", ["run", "hostile"])
def test_the_markdown_says_all_of_the_document(name: str, request: pytest.FixtureRequest) -> None:
    chosen = request.getfixturevalue(name)
    page = Page(MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(whole(chosen))).text
    assert [text for text in texts(document(chosen)) if one_line(text) not in page] == []


def test_markdown_names_are_never_markup(hostile: Run) -> None:
    tags = Page(MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(render(hostile, "md"))).tags
    assert {tag for tag, _ in tags} <= TAGS
    assert {attrs["href"] for tag, attrs in tags if tag == "a"} == {"report.html"}


def test_markdown_tables_are_whole(hostile: Run) -> None:
    rows = [line for line in whole(hostile).splitlines() if line.startswith("|")]
    tables = [part for part in parts(document(hostile)) if isinstance(part, Table) and not part.facts]
    cards = [part for part in parts(document(hostile)) if isinstance(part, Card)]
    assert len(rows) == sum(len(table.rows) + 2 for table in tables) + len(cards) + 2


def test_page_names_are_never_markup(page: str, hostile: Run) -> None:
    scripts = [attrs.get("type") for tag, attrs in Page(render(hostile, "html")).tags if tag == "script"]
    assert scripts == [attrs.get("type") for tag, attrs in Page(page).tags if tag == "script"]
    assert scripts == ["application/gzip", "application/json", "module", "module"]


def test_chart_data_survives_the_page(hostile: Run) -> None:
    (packed,) = (script for script in Page(render(hostile, "html")).scripts if script.startswith("H4sI"))
    specs = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert len(specs) == 2  # all models of a phase have the same name here
    assert all(HOSTILE in spec["description"] for spec in specs)


def test_nothing_is_fetched_and_only_own_scripts_may_run(page: str) -> None:
    parsed = Page(page)
    addresses = [value for _, attrs in parsed.tags for key, value in attrs.items() if key in FETCHING]
    assert all(value and value.startswith(("#", "data:,", "data:application/gzip;base64,")) for value in addresses)
    assert not re.search(r"url\(|@import", page.split("</style>")[0])
    policy = next(attrs["content"] for tag, attrs in parsed.tags if attrs.get("http-equiv"))
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1]


def test_the_page_is_small_enough_to_send(page: str) -> None:
    assert len(page.encode()) < 3_000_000


def test_a_page_without_charts_has_no_chart_library(run: Run) -> None:
    assert len(render(replace(run, measurements=()), "html").encode()) < 60_000


def test_tables_have_captions_and_scopes(page: str) -> None:
    tags = Page(page).tags
    names = [tag for tag, _ in tags]
    assert names.count("caption") == names.count("table") > 5
    assert all(attrs.get("scope") in ("col", "row") for tag, attrs in tags if tag == "th")
    assert names.count("h1") == 1
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_tone_is_told_by_a_sign(run: Run) -> None:
    for text in (render(run, "html"), render(run, "md")):
        assert "✓" in text
        assert "✗" in text


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


def test_write_leaves_three_whole_files(run: Run, tmp_path: Path) -> None:
    page = write(run, tmp_path / "new" / "folder")
    assert page.name == "report.html"
    assert sorted(path.name for path in page.parent.iterdir()) == ["measurements.csv", "report.html", "report.md"]
    assert page.read_text(encoding="utf-8") == render(run, "html")


def test_a_name_that_utf8_cannot_hold_does_not_lose_the_report(run: Run, tmp_path: Path) -> None:
    broken = replace(run, header={"schema": 1, "name": "half \ud83d"})
    assert "half ?" in write(broken, tmp_path).read_text(encoding="utf-8")


def test_a_run_read_back_from_its_folder_gives_the_same_report(run: Run, tmp_path: Path) -> None:
    assert document(fake_run(tmp_path / "run")) == document(run)


def test_the_page_carries_its_data(run: Run, page: str) -> None:
    packed = dict(re.findall(r'data-name="([^"]+)"[^>]*base64,([^"]+)"', page))
    files = {name: gzip.decompress(base64.b64decode(text)).decode() for name, text in packed.items()}
    assert files["measurements.csv"] == render(run, "csv")
    assert files["report.json"] == render(run, "json")
    assert [from_line(line) for line in files["records.jsonl"].splitlines()] == [*run.verdicts, *run.measurements]


def test_the_json_document_is_of_its_published_schema(run: Run, hostile: Run) -> None:
    published = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text())
    assert published == schema()
    for made in (run, hostile, Run(folder=Path(), header={})):
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


def test_the_markdown_is_short_enough_for_a_pull_request(run: Run) -> None:
    assert len(render(run, "md").splitlines()) <= markdown.LINES
    text = markdown.render(document(run), lines=120)
    assert len(text.splitlines()) <= 120
    away = re.findall(r"^(.+) \((\d+) rows\): in \[the page\]\(report\.html\)\.$", text, re.MULTILINE)
    made = {(part.caption, str(len(part.rows))) for part in parts(document(run)) if isinstance(part, Table)}
    assert away
    assert set(away) <= made
    assert "**ort-cpu**" in text
