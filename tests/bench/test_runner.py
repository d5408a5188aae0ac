"""The loop, on fake workers: every case has a row, a fault is a reason, and what was measured is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from isorun.bench import measure, yardsticks
from isorun.bench.client import WorkerUnsuited
from isorun.bench.records import Run
from isorun.bench.runfolder import read_run
from isorun.bench.runner import Runner
from isorun.bench.suite import Suite, load

from .fake_worker import RIGHT, Behaviour, FakeWorker, died, finish, refused

pytestmark = pytest.mark.usefixtures("workers")


def _suite(**chosen: object) -> Suite:
    return load("quick", **{"models": ["gpt2"], "seq": "16,32,64", "past": "8", **chosen})


def _run(folder: Path, suite: Suite | None = None) -> Run:
    return finish(Runner(suite or _suite(), folder))


def _statuses(run: Run, runtime: str) -> dict[tuple[str, int], str]:
    return {(m.case.phase, m.case.length): m.status for m in run.measurements if m.case.runtime == runtime}


ALL = [("forward", 16), ("forward", 32), ("forward", 64), ("step", 8)]


def test_every_model_runtime_and_length_has_a_row(tmp_path: Path) -> None:
    run = _run(tmp_path / "run")
    for runtime in ("torch", "ort-cpu"):
        assert _statuses(run, runtime) == dict.fromkeys(ALL, "ok")
    assert {(v.model, v.phase): v.status for v in run.verdicts} == {
        ("gpt2", "forward"): "pass",
        ("gpt2", "step"): "pass",
    }
    assert run.header["finished"] is not None
    assert set(run.header["environment"]["matmul_gflops"]) == {"torch", "ort-cpu"}
    assert run.header["environment"]["overhead_ns"] == pytest.approx({"torch": 1000, "ort-cpu": 1000}, rel=0.02)
    assert not (tmp_path / "run" / "work").exists()


def test_blocks_of_all_runtimes_are_paired(tmp_path: Path) -> None:
    run = _run(tmp_path / "run")
    for key in ALL:
        counts = {len(m.blocks_ns) for m in run.measurements if (m.case.phase, m.case.length) == key}
        assert len(counts) == 1
        assert counts.pop() >= measure.FEWEST


def test_blocks_alternate_between_runtimes(tmp_path: Path) -> None:
    _run(tmp_path / "run", _suite(seq="16"))
    order = [process for op, process in FakeWorker.asked if op == "block" and process != "twin"]
    pairs = list(zip(order[::2], order[1::2], strict=True))
    assert all(set(pair) == {"torch", "ort-cpu"} for pair in pairs)
    assert len(set(pairs)) == 2, "the order inside a round is shuffled"


def test_wrong_outputs_get_no_time(tmp_path: Path) -> None:
    FakeWorker.behaviours = {"ort-cpu": Behaviour(error={**RIGHT, "rms": 4e-7})}
    run = _run(tmp_path / "run")
    wrong = [m for m in run.measurements if m.case.runtime == "ort-cpu"]
    assert {m.status for m in wrong} == {"failed"}
    assert all("logits is 4 times as far from float64 truth" in str(m.reason) for m in wrong)
    assert all(m.blocks_ns == () and m.errors[0].rms == 4e-7 for m in wrong)
    assert _statuses(run, "torch") == dict.fromkeys(ALL, "ok")


def test_a_runtime_that_refuses_the_model_is_a_row_for_each_case(tmp_path: Path) -> None:
    FakeWorker.behaviours = {"ort-cpu": Behaviour(failures={("load", None): refused("no kernel for Foo")})}
    run = _run(tmp_path / "run")
    assert {m.reason for m in run.measurements if m.case.runtime == "ort-cpu"} == {"no kernel for Foo"}
    assert _statuses(run, "ort-cpu") == dict.fromkeys(ALL, "failed")
    assert _statuses(run, "torch") == dict.fromkeys(ALL, "ok")


def test_a_runtime_that_is_not_for_such_graphs_is_skipped(tmp_path: Path) -> None:
    FakeWorker.behaviours = {"torch": Behaviour(failures={("load", None): WorkerUnsuited("no quantised source")})}
    run = _run(tmp_path / "run")
    assert {m.reason for m in run.measurements if m.case.runtime == "torch"} == {"no quantised source"}
    assert _statuses(run, "torch") == dict.fromkeys(ALL, "skipped")
    assert _statuses(run, "ort-cpu") == dict.fromkeys(ALL, "ok")


@pytest.mark.parametrize("op", ["stage", "block", "facts"])
def test_a_runtime_that_dies_on_one_length_runs_the_next(tmp_path: Path, op: str) -> None:
    FakeWorker.behaviours = {"ort-cpu": Behaviour(failures={(op, 32): died("killed by SIGSEGV")})}
    run = _run(tmp_path / "run")
    assert _statuses(run, "ort-cpu") == {**dict.fromkeys(ALL, "ok"), ("forward", 32): "failed"}
    assert [m.reason for m in run.measurements if m.status == "failed"] == ["killed by SIGSEGV"]
    assert _statuses(run, "torch") == dict.fromkeys(ALL, "ok")


def test_a_failed_export_is_a_reason_for_its_cases_alone(tmp_path: Path) -> None:
    FakeWorker.exports = {"export gpt2@small-forward": died("killed by SIGKILL")}
    run = _run(tmp_path / "run")
    assert {m.reason for m in run.measurements if m.case.phase == "forward"} == {"export failed: killed by SIGKILL"}
    assert {m.status for m in run.measurements if m.case.phase == "step"} == {"ok"}


@pytest.mark.parametrize("failure", [refused("out of memory"), died("killed by SIGKILL")], ids=["refused", "died"])
def test_a_length_without_truth_is_a_reason_and_the_others_are_measured(tmp_path: Path, failure: Exception) -> None:
    FakeWorker.exports = {"truth gpt2@small-forward 32": failure}
    run = _run(tmp_path / "run")
    assert _statuses(run, "torch") == {**dict.fromkeys(ALL, "ok"), ("forward", 32): "failed"}
    assert {m.reason for m in run.measurements if m.case.seq == 32} == {f"no truth to compare with: {failure}"}


def test_what_the_graph_costs_stands_in_the_records(tmp_path: Path) -> None:
    run = _run(tmp_path / "run")
    rates = yardsticks.rates(run.header["environment"], "fp32")
    for m in run.measurements:
        assert (m.graph_flops, m.graph_bytes) == (10**6 * m.case.length, 10**5)
        assert m.memory == {
            "weights": 5000, "predicted_weights": 4096, "predicted_cache": 16, "predicted_activations": 64
        }  # fmt: skip
        flops, moved = rates[m.case.runtime]
        assert m.expected_ns == pytest.approx(10**6 * m.case.length / flops + 10**5 / moved)
        assert m.work == m.expected_ns


def test_an_arbiter_that_fails_is_a_verdict_and_the_cases_are_measured(tmp_path: Path) -> None:
    FakeWorker.exports = {"same_function gpt2@small-step": refused("no operator Foo")}
    run = _run(tmp_path / "run")
    assert {v.phase: v.status for v in run.verdicts} == {"forward": "pass", "step": "error"}
    assert _statuses(run, "torch")[("step", 8)] == "ok"


def test_a_length_beyond_a_table_is_skipped_with_the_limit(tmp_path: Path) -> None:
    suite = load("quick", models=["bert-base"])
    run = _run(tmp_path / "run", suite)
    skipped = [m for m in run.measurements if m.status == "skipped"]
    assert {(m.case.seq, m.reason) for m in skipped} == {
        (n, f"{n} tokens exceed the table of 512 positions of bert-base") for n in suite.seq if n > 512
    }
    assert len(run.measurements) == 2 * len(suite.seq)


def test_a_missing_runtime_is_skipped_with_its_reason(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", _suite(runtimes=["torch", "torch-cuda"]))
    reasons = {m.reason for m in run.measurements if m.case.runtime == "torch-cuda"}
    assert len(reasons) == 1
    assert "CUDA" in str(reasons.pop())
    assert _statuses(run, "torch") == dict.fromkeys(ALL, "ok")


def test_an_interrupted_run_keeps_what_was_measured(tmp_path: Path) -> None:
    steps = Runner(_suite(), tmp_path / "run").run()
    for step in steps:
        if step.label == "gpt2@small-forward 32":
            break
    steps.close()
    run = read_run(tmp_path / "run")
    assert _statuses(run, "torch") == {("forward", 16): "ok", ("forward", 32): "ok"}
    assert run.header["finished"] is None
    assert run.header["elapsed_s"] is not None
    assert not (tmp_path / "run" / "work").exists()
