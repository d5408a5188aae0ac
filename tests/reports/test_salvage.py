"""Bad run folders: what can be read is reported, what cannot is said, and a newer schema is refused by number."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from isorun import cli
from isorun.bench.runfolder import RunError
from isorun.reports.build import document, render
from isorun.reports.salvage import read

from ..fakes import LAWS, fake_run
from .reading import tables


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fake_run(tmp_path / "run")
    return tmp_path / "run"


def problems(folder: Path) -> list[str]:
    table = tables(document(read(folder)), "environment")["Records that could not be read"]
    return [row[0].text for row in table.rows]


@pytest.mark.parametrize("header", [None, "", '{"schema": 1, "name": "cut o', "[]", "{}", "\ud83d", "[" * 100_000])
def test_records_outlive_their_header(folder: Path, header: str | None) -> None:
    (folder / "run.json").unlink()
    if header is not None:
        (folder / "run.json").write_bytes(header.encode("utf-8", "surrogatepass"))
    run = read(folder)
    assert len(run.measurements) == len(fake_run().measurements)
    assert problems(folder)[0].startswith(str(folder))
    assert "faster" in render(run, "md").decode()


def test_half_a_line_and_damaged_lines_are_named_and_the_rest_is_told(folder: Path) -> None:
    file = folder / "records.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    wrong = json.loads(lines[-2])
    wrong["case"]["batch"] = "many"
    damaged = [*lines[:-3], "not json\n", json.dumps(wrong) + "\n", lines[-1][:40]]
    file.write_text("".join(damaged))
    said = problems(folder)
    assert [text.split(":")[0] for text in said] == [f"records.jsonl line {len(damaged) - back}" for back in (2, 1, 0)]
    assert len(read(folder).measurements) == len(fake_run().measurements) - 3
    page = render(read(folder), "html").decode()
    assert "3 records could not be read" in page
    assert all(f"{model} @ small" in page for model in LAWS)


def test_a_newer_schema_is_refused_by_number(folder: Path) -> None:
    header = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**header, "schema": 7}))
    with pytest.raises(RunError, match="schema 7 is newer than the 1 that this isorun reads"):
        read(folder)


def test_a_folder_without_anything_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no run\.json"):
        read(tmp_path)
    with pytest.raises(RunError, match="no such run folder"):
        read(tmp_path / "nowhere")


def test_a_run_that_ended_before_its_first_case_says_so(folder: Path) -> None:
    (folder / "records.jsonl").unlink()
    assert problems(folder) == ["records.jsonl is missing: the run ended before its first case"]


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["isorun", "report", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "-o", "x.pdf"], "x.pdf: cannot tell the format from the name; say --format, one of html, md, csv"),
        (["run", "run"], "2 runs: a report is of one run"),
        (["run", "-o", "no/such/folder/x.md"], "No such file or directory"),
    ],
)
def test_refusals_of_the_command(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(folder.parent)
    assert call(monkeypatch, *arguments) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_the_command_writes_each_format(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.md", "a.csv", "a.json"):
        assert call(monkeypatch, "run", "-o", name) == 0
        assert Path(name).read_bytes() == render(read(Path("run")), Path(name).suffix[1:])
