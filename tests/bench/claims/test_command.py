"""`isorun claims`: its table, its document, its page, its refusals."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from isorun import cli
from isorun.bench.claims.outcome import Part, Result, Results
from isorun.reports.claims import FORMATS, summary


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["isorun", "claims", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_a_chosen_claim_is_tried_and_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "--only", "2,E9") == 0
    said = capsys.readouterr().out
    assert "2  confirmed: Multi-head attention" in said
    assert "E9  refuted: A single head" in said
    assert "✗ A single head has 3·512² weights: 1,048,576 = 4·512²" in said
    assert said.splitlines()[-1].endswith("1 confirmed and 1 refuted.")


def test_the_errors_alone_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "--errors", "--only", "2,E2,E6", "--json") == 0
    content = json.loads(capsys.readouterr().out)
    assert [(row["key"], row["verdict"]) for row in content["results"]] == [("E2", "refuted"), ("E6", "refuted")]
    assert all(part["evidence"] for row in content["results"] for part in row["parts"])
    assert content["environment"]["threads"] == 1
    assert content["environment"]["versions"]["torch"]


@pytest.mark.parametrize("form", ["html", "md"])
def test_a_page_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str
) -> None:
    assert call(monkeypatch, "--only", "2,E6", "-o", str(tmp_path / f"claims.{form}")) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / f"claims.{form}")
    page = (tmp_path / f"claims.{form}").read_text(encoding="utf-8")
    assert "1,048,576" in page
    assert "4096 / 32 = 128" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--only", "22"], "unknown claim '22'; there are 1, 2, 3"), (["-o", "claims.pdf"], "write a page (.html)")],
)
def test_refusals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert call(monkeypatch, *arguments) == 2
    assert message in capsys.readouterr().err


def test_results_of_every_kind_are_shown_and_never_markup() -> None:
    parts = (Part("<script>", True, "1 & 2"), Part("it is", False, "| 3"))
    rows = (
        Result(key="1", kind="claim", statement="<b>", right="", parts=parts, seconds=1.0),
        Result(key="2", kind="claim", statement="s", right="", parts=(), seconds=1.0, reason="ImportError: <i>"),
        Result(key="E1", kind="error", statement="s", right="r", parts=parts[1:], seconds=1.0),
    )
    results = Results(created="2026-03-14T09:26:53+00:00", environment={"cores": 2}, results=rows)
    assert summary(rows) == "3 statements tried in 3 s: 1 refuted, 1 confirmed in part and 1 not tried."
    for render in FORMATS.values():
        text = render(results)
        assert "<script>1" not in text
        assert "<i>" not in text
        assert "ImportError: &lt;i&gt;" in text
        assert "2026-03-14 09:26 UTC" in text
