"""Batch as an axis of the grid: each is a case of its own, in processes of its own, and resumed alone."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from isorun.bench.plan import CALLS
from isorun.bench.records import Case
from isorun.bench.runfolder import read_run
from isorun.bench.runner import Runner
from isorun.bench.suite import Point, Suite, SuiteError, groups, load, sizes

from .fake_worker import Behaviour, FakeWorker, finish

pytestmark = pytest.mark.usefixtures("workers")


def _suite(**chosen: object) -> Suite:
    return load("quick", **{"models": ["gpt2"], "seq": "16,32", "past": "8", "batch": "1,4", **chosen})


def test_every_batch_has_every_length_in_lines_of_one_batch() -> None:
    forward, step = groups(_suite())
    assert forward.points == (Point(1, 16), Point(1, 32), Point(4, 16), Point(4, 32))
    assert forward.lines == [[Point(1, 16), Point(1, 32)], [Point(4, 16), Point(4, 32)]]
    assert step.points == (Point(1, 8), Point(4, 8))
    assert sizes(step.case(Point(4, 8), "torch")) == {"batch": 4, "sequence": 1, "past": 8, "source": 8}


@pytest.mark.parametrize(("given", "expected"), [("8,1,8", (1, 8)), ("1:8:2x", (1, 2, 4, 8)), (3, (3,)), ([2], (2,))])
def test_batches_are_written_as_lengths_are(given: object, expected: tuple[int, ...]) -> None:
    assert _suite(batch=given).batch == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("0", "batch '0': 0 is below 1"),
        ("1,-2", "batch '1,-2': -2 is below 1"),
        ("", "batch '': write 64,128"),
        ("two", "batch 'two': write 64,128"),
        ("1.5", "batch '1.5': write 64,128"),
        ("8:1:2x", "batch '8:1:2x': there is no number in it"),
        ("1:1000000000000:+1", "batch '1:1000000000000:+1': more than 1000 numbers"),
    ],
)
def test_batches_that_make_no_grid_are_refused_with_the_text(given: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        _suite(batch=given)
    assert str(caught.value).startswith(message)


def test_each_batch_has_its_row_its_truth_and_its_cost(tmp_path: Path) -> None:
    run = finish(Runner(_suite(), tmp_path / "run"))
    assert Counter((m.case.batch, m.case.phase, m.case.length) for m in run.measurements) == dict.fromkeys(
        [(b, phase, n) for b in (1, 4) for phase, n in (("forward", 16), ("forward", 32), ("step", 8))], 2
    )
    assert {m.status for m in run.measurements} == {"ok"}
    asked = Counter(op for op, _ in FakeWorker.asked)
    assert asked["truth"] == 6
    assert asked["export"] == 2 + 3, "a graph has all batches; three yardsticks"
    work = {(m.case.batch, m.case.length): m.flops for m in run.measurements if m.case.phase == "forward"}
    assert work[4, 32] == 4 * (work[1, 32] or 0) > 0
    assert run.header["suite"]["batch"] == [1, 4]


def test_each_batch_is_loaded_anew(tmp_path: Path) -> None:
    """A shorter call after a longer one of another batch would keep its memory."""
    finish(Runner(_suite(past="8", seq="16,32"), tmp_path / "run"))
    loads = [name for op, name in FakeWorker.asked if op == "load" and name == "torch"]
    assert len(loads) == 3 + 2 * 2, "three yardsticks; two graphs at two batches"


def test_a_resumed_run_measures_the_batches_that_are_missing(tmp_path: Path) -> None:
    steps = Runner(_suite(), tmp_path / "run").run()
    next(step for step in steps if step.label == "gpt2@small-forward 4 x 16")
    steps.close()
    before = read_run(tmp_path / "run").measurements
    assert {(m.case.batch, m.case.length) for m in before} == {(1, 16), (1, 32), (4, 16)}
    FakeWorker.asked.clear()
    run = finish(Runner.resume(tmp_path / "run"))
    assert Counter(op for op, _ in FakeWorker.asked)["truth"] == 3  # forward 4 x 32, and both steps
    assert [m for m in before if m not in run.measurements] == []
    assert set(Counter(m.case for m in run.measurements).values()) == {1}
    assert len(run.measurements) == 12


def test_the_plan_leaves_a_batch_out_that_does_not_fit(tmp_path: Path) -> None:
    """16 rows do 16 times the work of a call that takes a second on each runtime."""
    FakeWorker.behaviours = dict.fromkeys(("torch", "ort-cpu"), Behaviour(lambda n: 1e9))
    run = finish(Runner(_suite(batch="1,16", seq="16", budget_s=60, limited=True), tmp_path / "run"))
    found = {m.case.batch: m for m in run.measurements if m.case.phase == "forward"}
    assert found[1].status == "ok"
    assert (found[16].status, found[16].stopped) == ("skipped", "budget")
    needed = re.search(r"left out: it needs about ([\d.]+) s, ", str(found[16].reason))
    assert needed
    assert float(needed[1]) > 0.9 * 16 * CALLS * 2


def test_a_batch_is_part_of_what_identifies_a_case() -> None:
    (group, _) = groups(_suite())
    one, four = (group.case(Point(batch, 16), "torch") for batch in (1, 4))
    assert one != four
    assert isinstance(one, Case)
    assert "batch 4" in str(four)
