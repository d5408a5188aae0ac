"""The control of a run: a second process of one runtime, in every round, and no harm to a case when it fails."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from isorun.bench import measure
from isorun.bench.measure import Bench
from isorun.bench.records import Case, Measurement, from_line, to_line
from isorun.bench.runfolder import read_run
from isorun.bench.runner import Runner
from isorun.bench.suite import load
from isorun.bench.twins import control
from isorun.bench.work import Work

from .fake_worker import RIGHT, Behaviour, FakeWorker, died, refused

pytestmark = pytest.mark.usefixtures("workers")
RUNTIMES = ("torch", "ort-cpu")


def _measured(tmp_path: Path, work: Work | None = None) -> dict[str, Measurement]:
    cases = {
        name: Case(model="m", size="tiny", phase="forward", dtype="fp32", runtime=name, batch=1, seq=8, past=0)
        for name in RUNTIMES
    }
    with Bench(tmp_path / "m", RUNTIMES, 1, tmp_path, control="ort-cpu") as bench:
        shape = {"batch": 1, "sequence": 8, "source": 8}
        found = bench.measure(cases, shape, tmp_path / "truth.npz", 0.01, work or Work(batch=1, length=8))
    return {m.case.runtime: m for m in found}


@pytest.mark.parametrize(
    ("runtimes", "chosen"),
    [
        (["torch", "ort-cpu"], "ort-cpu"),
        (["torch-compile", "openvino", "torch"], "openvino"),
        (["torch-cuda", "torch-compile-cuda", "ort-cuda", "ort-tensorrt"], "ort-cuda"),
        (["torch-compile", "some-new-one"], "some-new-one"),
        (["ort-cpu"], None),
        ([], None),
    ],
)
def test_the_runtime_that_is_quickest_to_load_has_a_twin(runtimes: list[str], chosen: str | None) -> None:
    assert control(runtimes) == chosen


def test_a_twin_is_in_every_round(tmp_path: Path) -> None:
    found = _measured(tmp_path)
    assert {name: m.status for name, m in found.items()} == dict.fromkeys(RUNTIMES, "ok")
    assert len(found["ort-cpu"].twin_ns) == len(found["ort-cpu"].blocks_ns) >= measure.FEWEST
    assert found["torch"].twin_ns == ()
    order = [process for op, process in FakeWorker.asked if op == "block"]
    rounds = list(zip(order[::3], order[1::3], order[2::3], strict=True))
    assert all(set(one) == {*RUNTIMES, "twin"} for one in rounds)
    assert Counter(op for op, process in FakeWorker.asked if process == "twin")["stage"] == 1, "its outputs are checked"


FAULTS = {
    "refuses": Behaviour(failures={("load", None): refused("no memory")}),
    "dies": Behaviour(failures={("block", 8): died("killed by SIGKILL")}),
    "dies at the end": Behaviour(failures={("facts", 8): died("killed by SIGKILL")}),
    "wrong": Behaviour(error={**RIGHT, "rms": 4e-7}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_twin_that_fails_leaves_no_trace(tmp_path: Path, fault: str) -> None:
    FakeWorker.behaviours = {"twin": FAULTS[fault]}
    found = _measured(tmp_path)
    for m in found.values():
        assert (m.status, m.twin_ns, m.reason) == ("ok", (), None)
        assert len(m.blocks_ns) >= measure.FEWEST


def test_a_twin_is_not_timed_when_its_runtimes_are_gone(tmp_path: Path) -> None:
    FakeWorker.behaviours = dict.fromkeys(RUNTIMES, Behaviour(failures={("block", 8): died("killed by SIGSEGV")}))
    FakeWorker.behaviours["twin"] = Behaviour()
    found = _measured(tmp_path)
    assert {m.reason for m in found.values()} == {"killed by SIGSEGV"}
    assert sum(op == "block" for op, _ in FakeWorker.asked) == 3


def test_a_twin_does_not_say_when_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure.time, "monotonic", lambda: 0.0)  # the time is never used up

    def shaky(length: int) -> float:
        shaky.calls += 1  # type: ignore[attr-defined]
        return 1e6 if shaky.calls % 2 else 9e6  # type: ignore[attr-defined]

    shaky.calls = 0  # type: ignore[attr-defined]
    FakeWorker.behaviours = {"twin": Behaviour(call_ns=shaky)}
    assert {m.stopped for m in _measured(tmp_path).values()} == {"precision"}


def test_a_graph_that_fills_the_memory_has_no_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "free_bytes", lambda: 1000)
    small, large = (Work(batch=1, length=8, predicted={"predicted_weights": size}) for size in (200, 300))
    assert _measured(tmp_path, small)["ort-cpu"].twin_ns
    assert not _measured(tmp_path, large)["ort-cpu"].twin_ns


def test_records_hold_the_twin_and_older_ones_are_read(tmp_path: Path) -> None:
    m = _measured(tmp_path)["ort-cpu"]
    assert from_line(to_line(m)) == m
    line = json.loads(to_line(m))
    del line["twin_ns"]
    assert from_line(json.dumps(line)) == replace(m, twin_ns=())
    line["twin_ns"] = [["soon"]]
    with pytest.raises(ValueError, match="twin_ns"):
        from_line(json.dumps(line))


def test_a_run_and_its_resumption_have_a_control(tmp_path: Path) -> None:
    steps = Runner(load("quick", models=["gpt2"], seq="16,32", past="8"), tmp_path / "run").run()
    for step in steps:
        if step.label == "gpt2@small-forward 16":
            break
    steps.close()
    (first,) = (m for m in read_run(tmp_path / "run").measurements if m.case.runtime == "ort-cpu")
    for _ in Runner.resume(tmp_path / "run").run():
        pass
    run = read_run(tmp_path / "run")
    twins = {m.case.length: m for m in run.measurements if m.twin_ns}
    assert set(twins) == {16, 32, 8}
    assert asdict(twins[16]) == asdict(first)


def test_a_run_of_one_runtime_has_none(tmp_path: Path) -> None:
    suite = load("quick", models=["gpt2"], runtimes=["ort-cpu"], seq="16", past=())
    for _ in Runner(suite, tmp_path / "run").run():
        pass
    assert [m.twin_ns for m in read_run(tmp_path / "run").measurements] == [()]
    assert "twin" not in {process for _, process in FakeWorker.asked}
