"""`isorun compare` from end to end: exit status, what it prints and writes, and how it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from isorun import cli

from .synthetic import HEADER, benchmark_file, run, runtime, write

BASE = [1e-3, 1.01e-3, 1.02e-3, 1.03e-3, 1.04e-3, 1.05e-3]


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(run(0), tmp_path / "base")
    write(run(1), tmp_path / "same")
    write(run(2, runtime("ort-cpu", 1.05)), tmp_path / "slow")
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["isorun", "compare", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("arguments", "status", "answer"),
    [
        (["base", "base"], 0, "No regression: nothing is for sure slower, and nothing broke."),
        (["base", "same"], 0, "No regression: nothing is for sure slower, and nothing broke."),
        (["base", "slow"], 1, "Regression: for sure slower over all cases: ort-cpu +"),
        (["base", "slow", "--fail-over", "2%"], 1, "Regression: for sure slower by more than 2 % over all cases"),
        (["base", "slow", "--fail-over", "10%"], 0, "nothing is for sure slower by more than 10 %"),
        (["slow", "base"], 0, "No regression"),
        (["base", "same", "slow"], 1, "Regression"),
    ],
)
def test_the_status_is_the_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, answer: str
) -> None:
    assert call(monkeypatch, *arguments) == status
    assert answer in capsys.readouterr().out.splitlines()[-1]


REFUSALS = [
    (["base"], "two runs at least"),
    (["base", "nowhere"], "nowhere: no such run folder"),
    (["base", "nowhere.json"], "nowhere.json: no such file"),
    (["base", "empty"], "empty: no run.json, so this is not a run folder"),
    (["base", "newer"], "newer/run.json: schema 99 is newer than the 1 that this isorun reads"),
    (["base", "elsewhere"], "processor: AMD EPYC 9R14 against Intel Xeon"),
    (["base", "base", "--allow-different", "weather"], "--allow-different weather: no such key"),
    (["base", "bare"], "no case in common"),
    (["base", "slow", "--fail-over", "much"], "--fail-over much: write a percentage"),
    (["base", "slow", "--fail-over", "-5%"], "write a percentage of at least 0"),
    (["base", "slow", "--fail-over", "nan"], "write a percentage"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSALS, ids=lambda value: " ".join(value))
def test_refusals_are_one_message_and_status_2(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    runs: Path,
    arguments: list[str],
    message: str,
) -> None:
    (runs / "empty").mkdir()
    for name, header in (
        ("newer", {**HEADER, "schema": 99}),
        ("elsewhere", {**HEADER, "schema": 1, "environment": {**HEADER["environment"], "processor": "Intel Xeon"}}),
    ):
        write(run(0), runs / name)
        (runs / name / "run.json").write_text(json.dumps(header))
    write(run(0), runs / "bare")
    (runs / "bare" / "records.jsonl").unlink()
    assert call(monkeypatch, *arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert "Traceback" not in printed.err


def test_what_is_allowed_to_differ_is_compared(monkeypatch: pytest.MonkeyPatch, runs: Path) -> None:
    header = {**HEADER, "schema": 1, "environment": {**HEADER["environment"], "cores": 64, "processor": "Intel Xeon"}}
    (runs / "same" / "run.json").write_text(json.dumps(header))
    assert call(monkeypatch, "base", "same", "--allow-different", "cores") == 2
    assert call(monkeypatch, "base", "same", "--allow-different", "cores,processor") == 0
    assert call(monkeypatch, "base", "same", "--allow-different", "cores", "--allow-different", "processor") == 0


def test_a_half_written_run_is_compared_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    records = runs / "slow" / "records.jsonl"
    text = records.read_text()
    records.write_text("not a record\n" + text[: len(text) * 3 // 4])
    (runs / "slow" / "run.json").write_text(json.dumps({**HEADER, "schema": 1, "finished": None}))
    assert call(monkeypatch, "base", "slow") == 1
    said = capsys.readouterr().out
    assert "Not finished, compared as far as recorded: slow." in said
    assert "slow (2 problems)" in said
    assert "records.jsonl line 1" in said
    assert "vanished" in said


@pytest.mark.parametrize("form", ["html", "md", "csv", "json"])
def test_every_format_is_written_whole_with_the_same_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], runs: Path, form: str
) -> None:
    assert call(monkeypatch, "base", "slow", "-o", f"out.{form}") == 1
    assert capsys.readouterr().out.strip() == f"out.{form}"
    assert call(monkeypatch, "base", "slow", "--format", form) == 1
    assert capsys.readouterr().out == (runs / f"out.{form}").read_text(encoding="utf-8")


def test_files_of_pytest_benchmark_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    names = [f"test_{i}" for i in range(8)]
    benchmark_file(runs / "a.json", dict.fromkeys(names, BASE))
    benchmark_file(runs / "b.json", {name: [t * (2 if name == "test_3" else 1) for t in BASE] for name in names})
    assert call(monkeypatch, "a.json", "a.json") == 0
    capsys.readouterr()
    assert call(monkeypatch, "a.json", "b.json") == 1
    said = capsys.readouterr().out
    assert "test_3" in said
    assert "test_2" not in said
    assert "Nothing in these runs tells slower code from a slower machine" in said
