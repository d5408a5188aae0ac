"""One content, several formats: nothing is lost, nothing in a name is ever markup, script or formula."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from isorun.bench.records import Run, Verdict
from isorun.reports import html, markdown
from isorun.reports.build import document, write
from isorun.reports.build import render as encoded
from isorun.reports.document import Card, Chart, Document, Table

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


def test_without_a_chart_library_the_page_is_whole_but_for_its_charts(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library panics on a Linux without /proc, with an exception that is no Exception."""

    class PanicException(BaseException):
        pass

    def panic(_: str) -> str:
        raise PanicException("assertion failed")

    monkeypatch.setattr("vl_convert.javascript_bundle", panic)
    html._library.cache_clear()
    page = encoded(run, "html").decode()
    html._library.cache_clear()
    assert "The charts are left out" in page
    assert "data-chart" not in page
    assert page.count("<table") > 5


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


def test_the_markdown_is_short_enough_for_a_pull_request(run: Run) -> None:
    assert len(render(run, "md").splitlines()) <= markdown.LINES
    text = markdown.render(document(run), lines=130)
    assert len(text.splitlines()) <= 130
    away = re.findall(r"^(.+) \((\d+) rows\): in \[the page\]\(report\.html\)\.$", text, re.MULTILINE)
    made = {(part.caption, str(len(part.rows))) for part in parts(document(run)) if isinstance(part, Table)}
    assert away
    assert set(away) <= made
    assert "**ort-cpu**" in text
