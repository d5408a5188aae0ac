"""A comparison as page, Markdown, CSV and JSON: complete, short where it should be, and never executed."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from isorun.bench.records import Run
from isorun.reports.compare.build import COLUMNS, FORMATS
from isorun.reports.compare.comparison import Comparison, compare
from isorun.reports.compare.words import signed

from .synthetic import cases, run, runtime

HOSTILE = '<script>alert("x")</script> | `=1+1` [a](javascript:b) *c*'


@pytest.fixture(scope="module")
def slow() -> Comparison:
    return compare([run(0, folder="base"), run(1, runtime("ort-cpu", 1.3), folder="head")])


@pytest.fixture(scope="module")
def hostile() -> Comparison:
    pair = [_renamed(run(seed, runtime("ort-cpu", 1 + seed)), HOSTILE) for seed in range(3)]
    return compare(pair)


def _renamed(chosen: Run, name: str) -> Run:
    rows = [replace(m, case=replace(m.case, model=f"{name}{m.case.model}")) for m in chosen.measurements]
    rows[0] = replace(rows[0], status="failed", reason=name, blocks_ns=())
    verdicts = [replace(v, detail=name, status="fail" if chosen.measurements else "pass") for v in chosen.verdicts]
    header = {**chosen.header, "environment": {**chosen.header["environment"], "os": f"{name}{len(str(rows))}"}}
    return replace(chosen, header=header, measurements=tuple(rows), verdicts=tuple(verdicts), problems=(name,))


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.links: set[str | None] = set()
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.links |= {value for key, value in attrs if key == "href"}

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def _markdown(text: str) -> Tags:
    return Tags(MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(text))


def test_markdown_fits_a_comment_and_folds_the_details(slow: Comparison) -> None:
    text = FORMATS["md"](slow)
    assert len(text.splitlines()) <= 200
    opened = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    assert "Regression: " in opened
    assert "ort-cpu +29.9 % (" in opened.split("Regression: ")[1].split("\n")[0]
    assert "Every case (40 rows)" in text
    assert "m5 @ small | forward | torch" not in opened  # unchanged, so folded


def test_the_page_holds_both_times_of_every_case(slow: Comparison) -> None:
    page = FORMATS["html"](slow)
    assert len(page.encode()) < 3_000_000
    said = "".join(Tags(page).words)
    for change in slow.changes:
        assert f"{signed(change.ratio - 1)} %" in said
    assert 'data-chart="0"' in page


def test_names_are_shown_and_never_markup(hostile: Comparison) -> None:
    page, comment = Tags(FORMATS["html"](hostile)), _markdown(FORMATS["md"](hostile))
    assert "script" not in comment.names
    assert comment.links <= {"compare.html"}
    assert page.names.count("script") == 3  # the data of the chart, the library and the page's own
    assert HOSTILE in "".join(page.words)
    assert HOSTILE in "".join(comment.words)


def test_markdown_tables_are_whole(hostile: Comparison) -> None:
    for line in FORMATS["md"](hostile).splitlines():
        if line.startswith("|"):
            assert line.endswith("|")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_is_complete_and_never_a_formula(start: str) -> None:
    evil = f'{start}HYPERLINK("x")'
    text = FORMATS["csv"](compare([_named(run(0), evil), _named(run(1), evil)]))
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == len(cases())
    assert {row["model"] for row in rows} == {f"'{evil}"}


def _named(chosen: Run, name: str) -> Run:
    rows = (replace(m, case=replace(m.case, model=name, past=i)) for i, m in enumerate(chosen.measurements))
    return replace(chosen, measurements=tuple(rows))


def test_json_says_what_the_comparison_says(slow: Comparison) -> None:
    content = json.loads(FORMATS["json"](slow))
    assert content["schema"] == 1
    assert content["regressed"] is True
    assert content["runs"] == ["base", "head"]
    assert len(content["cases"]) == len(slow.changes)
    ort = next(row for row in content["runtimes"] if row["runtime"] == "ort-cpu")
    assert ort["verdict"] == "slower"
    assert 1.25 < ort["ratio_low"] < ort["ratio"] < ort["ratio_high"] < 1.35
    one = content["cases"][0]
    assert one["ratio"] == pytest.approx(one["head_ms"] / one["base_ms"])


def test_infinite_intervals_are_strict_json() -> None:
    single = [replace(m, blocks_ns=m.blocks_ns[:1]) for m in run(0).measurements]
    pair = compare([replace(run(0), measurements=tuple(single))] * 2)
    assert json.loads(FORMATS["json"](pair))["cases"][0]["ratio_high"] is None
    assert FORMATS["html"](pair)
    assert "(no interval)" in FORMATS["md"](pair)


@pytest.mark.parametrize(("value", "text"), [(0.05, "+5.0"), (-0.004, "−0.4"), (0.0001, "0.0"), (-0.0001, "0.0"),
                                             (41.2, "+4,120")])  # fmt: skip
def test_changes_are_written_with_their_sign(value: float, text: str) -> None:
    assert signed(value) == text
