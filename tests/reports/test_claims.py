"""Claims in the folder of a run become a section of its page; what is hostile there stays text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isorun.bench.claims.outcome import Part, Result, Results
from isorun.reports.build import document, render
from isorun.reports.claims import FILE, LARGEST, save, saved
from isorun.reports.document import Section, Table

from ..fakes import fake_run

ATTACK = "</script><script>alert(1)</script>"
RESULT = Result(
    key="2",
    kind="claim",
    statement=f"a statement {ATTACK}",
    right="",
    parts=(Part("it holds", True, "4 = 4"), Part("so does this", False, f"5 ≠ 4 {ATTACK}")),
    seconds=1.5,
)
ERROR = Result(key="E1", kind="error", statement="wrong", right="right", parts=(Part("it", False, "1"),), seconds=0.5)
FOUND = Results(created="2026-03-14T09:26:53+00:00", environment={"processor": "AMD"}, results=(RESULT, ERROR))


def section(folder: Path) -> Section:
    (found,) = (part for part in document(fake_run(folder)).sections if part.key == "claims")
    return found


def test_results_come_back_as_they_were_saved(tmp_path: Path) -> None:
    save(FOUND, tmp_path)
    assert saved(tmp_path) == FOUND


def test_the_page_has_verdicts_and_evidence(tmp_path: Path) -> None:
    save(FOUND, tmp_path)
    found = section(tmp_path)
    assert found.lead[0] == "2 statements tried in 2 s: 1 refuted and 1 confirmed in part."
    assert found.lead[1] == "Found 2026-03-14 09:26 UTC on AMD by `isorun claims`."
    captions = {part.caption: part for part in found.parts if isinstance(part, Table)}
    assert list(captions) == ["Claims", "Claims: the evidence", "Errors", "Errors: the evidence"]
    assert [cell.text for cell in captions["Claims"].rows[0]][2:] == ["confirmed in part", "not so: so does this"]
    assert captions["Claims: the evidence"].folded


def test_without_results_one_line_says_how_to_get_them(tmp_path: Path) -> None:
    found = section(tmp_path)
    assert found.parts == ()
    assert "isorun claims -o RUN" in found.lead[0]


def test_hostile_results_stay_text(tmp_path: Path) -> None:
    save(FOUND, tmp_path)
    page = render(fake_run(tmp_path), "html").decode()
    assert ATTACK not in page
    assert "a statement &lt;/script&gt;" in page


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "cannot be read"),
        ("[]", "no results"),
        ('{"results": [3]}', "not a result"),
        ('{"results": [{}]}', "not a result"),
        (
            json.dumps({"results": [{**RESULT.to_json(), "parts": [{"says": 1, "holds": True, "evidence": ""}]}]}),
            "says is 1",
        ),
        (json.dumps({"results": [{**RESULT.to_json(), "kind": "other"}]}), "kind is 'other'"),
        (json.dumps({**FOUND.to_json(), "created": 3}), "created is 3"),
        ("[" * 100_000, "cannot be read"),
        (" " * (LARGEST + 1), "more than"),
    ],
)
def test_a_damaged_file_is_named_and_the_rest_is_shown(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / FILE).write_text(content)
    found = section(tmp_path)
    assert found.lead[0].startswith(f"Not shown: {FILE}")
    assert reason in found.lead[0]
