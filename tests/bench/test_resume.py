"""Runs that end early: by a kill, a torn line, a full disk, a spent budget. Nothing is lost or doubled."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from isorun.bench import plan, records
from isorun.bench.records import Measurement, Run, from_line
from isorun.bench.resume import alone
from isorun.bench.runfolder import RunError, read_run, write_header
from isorun.bench.runner import Runner
from isorun.bench.suite import Suite, SuiteError, load
from isorun.bench.suitefile import seconds

from .fake_worker import Behaviour, FakeWorker, finish, refused

pytestmark = pytest.mark.usefixtures("workers")
ROWS = 2 * (3 + 1)  # runtimes, and the lengths of both phases


def _suite(**chosen: object) -> Suite:
    return load("quick", **{"models": ["gpt2"], "seq": "16,32,64", "past": "8", **chosen})


def _lines(folder: Path) -> list[str]:
    return (folder / "records.jsonl").read_text().splitlines()


def _stopped_after(folder: Path, label: str) -> None:
    steps = Runner(_suite(), folder).run()
    next(step for step in steps if step.label == label)
    steps.close()


def _whole(run: Run) -> None:
    """Every case has one row, and every graph one verdict."""
    assert set(Counter(m.case for m in run.measurements).values()) == {1}
    assert len(run.measurements) == ROWS
    assert sorted(v.phase for v in run.verdicts) == ["forward", "step"]
    assert run.header["finished"] is not None


def test_a_resumed_run_measures_only_what_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    _stopped_after(folder, "gpt2@small-forward 32")
    before = _lines(folder)
    FakeWorker.asked.clear()
    run = finish(Runner.resume(folder))
    _whole(run)
    assert _lines(folder)[: len(before)] == before
    assert Counter(op for op, _ in FakeWorker.asked)["stage"] == 2 * 3  # forward 64 and step 8: two runtimes and a twin
    assert len(run.header["resumed"]) == 1


def test_a_complete_run_is_left_as_it_is(tmp_path: Path) -> None:
    _whole(finish(Runner(_suite(), tmp_path / "run")))
    before = _lines(tmp_path / "run")
    FakeWorker.asked.clear()
    _whole(finish(Runner.resume(tmp_path / "run")))
    assert _lines(tmp_path / "run") == before
    assert FakeWorker.asked == []


def _killed(folder: Path, make: Any, at_step: int, after_s: float | None) -> None:
    """Run in a child process, and kill it so many seconds after it came to a step, or while it stands there (`None`).

    Step 0 is before the run begins.
    """
    reached, says = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for number, _ in enumerate(itertools.chain([None], make().run())):
                if number == at_step:
                    os.write(says, b".")
                    time.sleep(3600 if after_s is None else 0)
                time.sleep(0.0005)
        finally:
            os._exit(0)
    os.close(says)
    os.read(reached, 1)  # ends as well when the child ends before that step
    os.close(reached)
    time.sleep(after_s or 0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_run_killed_at_fifty_moments_loses_and_doubles_nothing(tmp_path: Path) -> None:
    steps = sum(1 for _ in Runner(_suite(), tmp_path / "whole").run())
    moments = random.Random(0)
    stages: Counter[int] = Counter()
    for number in range(50):
        folder = tmp_path / f"run-{number}"
        after_s = None if number % 3 == 0 else moments.uniform(0, 0.004)
        _killed(folder, lambda folder=folder: Runner(_suite(), folder), moments.randrange(steps + 1), after_s)
        if not folder.exists():  # killed before the folder appeared: there is nothing to resume
            continue
        before = read_run(folder)
        stages[len(before.measurements)] += 1
        again_s = moments.uniform(0, 0.004)
        _killed(folder, lambda folder=folder: Runner.resume(folder), moments.randrange(steps), again_s)
        run = finish(Runner.resume(folder))
        _whole(run)
        assert [m for m in before.measurements if m not in run.measurements] == []
    assert len(stages) >= 3, "kills that all fall into one stage show nothing"


@pytest.mark.parametrize("cut", [1, 2, 40, -1])
def test_a_torn_last_line_is_mended_and_its_length_measured_again(tmp_path: Path, cut: int) -> None:
    """Cut off so many bytes at the end; -1 is the line break alone, which loses no row."""
    folder = tmp_path / "run"
    _stopped_after(folder, "gpt2@small-forward 32")
    before = _lines(folder)
    file = folder / "records.jsonl"
    file.write_bytes(file.read_bytes()[: -abs(cut)])
    _whole(finish(Runner.resume(folder)))
    after = _lines(folder)
    whole = before[: len(before) - (2 if cut > 1 else 0)]
    assert [line for line in whole if line not in after] == []


def test_a_run_of_another_machine_or_version_is_not_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    _stopped_after(folder, "gpt2@small-forward 32")
    header = json.loads((folder / "run.json").read_text())
    header["environment"]["processor"] = "Z80"
    write_header(folder, header)
    with pytest.raises(RunError, match=r"processor was Z80 and is .* start a new run"):
        Runner.resume(folder)


def test_what_is_no_run_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such run folder"):
        Runner.resume(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"no run\.json"):
        Runner.resume(tmp_path)
    for suite in ({"models": ["gpt2"]}, {"models": 3}, None):
        write_header(tmp_path, {"suite": suite})
        with pytest.raises(RunError, match="the header names no suite that can be resumed"):
            Runner.resume(tmp_path)


def test_two_processes_do_not_measure_into_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    _stopped_after(folder, "gpt2@small-forward 32")
    with alone(folder), pytest.raises(RunError, match="another isorun is measuring"):
        Runner.resume(folder)


def test_a_full_disk_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, fsync, calls = tmp_path / "run", os.fsync, Counter()

    def full(handle: int) -> None:
        calls["fsync"] += 1
        if calls["fsync"] > 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        RunError, match="the disk is full; what was measured is kept: make room, then isorun bench --re"
    ):
        finish(Runner(_suite(), folder))
    kept = read_run(folder)
    assert kept.problems == ()
    assert len(kept.measurements) == 2 * 2
    assert not (folder / "work").exists()
    monkeypatch.setattr(os, "fsync", fsync)
    _whole(finish(Runner.resume(folder)))


def test_an_export_that_finds_the_disk_full_ends_the_run(tmp_path: Path) -> None:
    FakeWorker.exports = {"export gpt2@small-step": refused(f"truth: OSError: {os.strerror(errno.ENOSPC)}")}
    with pytest.raises(RunError, match="the disk is full"):
        finish(Runner(_suite(), tmp_path / "run"))


def test_a_budget_too_small_for_one_case_is_refused_with_the_figure(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"a budget of 3 s is too small: one case needs about 10\.4 s"):
        Runner(_suite(budget_s=3, limited=True), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_length_that_does_not_fit_the_budget_is_left_out_and_resumed(tmp_path: Path) -> None:
    FakeWorker.behaviours = dict.fromkeys(("torch", "ort-cpu"), Behaviour(lambda n: 6e7 * n))  # 1 s at n = 16
    run = finish(Runner(_suite(budget_s=20, limited=True), tmp_path / "run"))
    status = {(m.case.phase, m.case.length): (m.status, m.stopped) for m in run.measurements}
    assert status[("forward", 16)][0] == status[("step", 8)][0] == "ok"
    assert status[("forward", 64)] == ("skipped", "budget")
    reasons = [m.reason for m in run.measurements if m.case.length == 64]
    assert all(
        "left out: it needs about" in str(reason) and "of the budget of 20 s" in str(reason) for reason in reasons
    )
    again = finish(Runner.resume(tmp_path / "run", limit_s=1000))
    _whole(again)
    assert {m.status for m in again.measurements} == {"ok"}


def test_exports_that_use_up_their_share_leave_the_rest_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "EXPORT_SHARE", 0.0)
    run = finish(Runner(_suite(budget_s=20, limited=True), tmp_path / "run"))
    assert {m.status for m in run.measurements} == {"skipped"}
    assert {m.reason for m in run.measurements} == {"left out: exports have used their 0 s of the budget"}


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400)])
def test_a_budget_is_written_with_its_unit(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-3s", "ten", "10 m s", "3d"])
def test_a_budget_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(SuiteError, match="write 90s, 10m or 2h"):
        seconds(text)


LINE = records.to_line(
    Measurement(
        case=records.Case(model="m", size="s", phase="step", dtype="fp32", runtime="r", batch=1, seq=1, past=0),
        status="ok",
        blocks_ns=((1, 2), (3,)),
        errors=(records.OutputError(name="y", rms=0.5, max_abs=1, scale=1.0, ruler_rms=0.0),),
        placement=records.Placement(provider="p", nodes={"p": 3}, precision="fp32", threads=1),
        memory={"weights": 5},
    )
)


def test_a_record_survives_its_line() -> None:
    assert records.to_line(from_line(LINE)) == LINE


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('"batch":1', '"batch":"1"'),
        ('"batch":1', '"batch":true'),
        ('"model":"m"', '"model":null'),
        ('"status":"ok"', '"status":"fine"'),
        ('"blocks_ns":[[1,2],[3]]', '"blocks_ns":[[1,"2"],[3]]'),
        ('"blocks_ns":[[1,2],[3]]', '"blocks_ns":[1,2]'),
        ('"blocks_ns":[[1,2],[3]]', '"blocks_ns":3'),
        ('"rms":0.5', '"rms":[0.5]'),
        ('"nodes":{"p":3}', '"nodes":{"p":"3"}'),
        ('"nodes":{"p":3}', '"nodes":[3]'),
        ('"threads":1', '"threads":1.5'),
        ('"memory":{"weights":5}', '"memory":5'),
        ('"peak_bytes":null', '"peak_bytes":"much"'),
        ('"case":{', '"case":7,"x":{'),
    ],
)
def test_a_field_of_another_type_is_no_record(right: str, wrong: str) -> None:
    assert right in LINE
    with pytest.raises(ValueError, match="not a record: "):
        from_line(LINE.replace(right, wrong))
