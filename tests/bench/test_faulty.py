"""Runtimes at fault in processes of their own: a row with its reason for each, and the rest of the run complete."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isorun.bench import client, measure, prepare, runner, suite, truth
from isorun.bench.client import WorkerError
from isorun.bench.runfolder import read_run
from isorun.bench.runner import Runner
from isorun.bench.suite import load

from ..conftest import Exported
from . import faulty_worker
from .fake_worker import FakeWorker

LENGTHS = (8, 24)


@pytest.fixture
def faulty(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports are copied, truth is computed here, and what is measured is measured in real processes."""
    artifact = exported("lstm", "forward")

    class Preparer(FakeWorker):
        def ask(self, op: str, timeout_s: float = 0.0, **arguments: Any) -> dict[str, Any]:
            if op == "costs" or arguments["folder"].endswith(("matmul", "matvec", "nothing")):
                raise WorkerError("not in this test")
            if op == "export":
                shutil.copytree(artifact.folder, arguments["folder"])
            if op == "truth":
                return truth.write(arguments["folder"], arguments["sizes"], arguments["file"])
            return super().ask(op, timeout_s, **arguments)

    FakeWorker.exports, FakeWorker.open_workers = {}, []
    monkeypatch.setattr(prepare, "Worker", Preparer)
    monkeypatch.setattr(client, "COMMAND", (faulty_worker.__file__,))
    monkeypatch.setattr(measure, "TIMEOUT_S", 10.0)
    monkeypatch.setattr(measure, "_memory", lambda runtime: 1 << 30)
    for module in (runner, suite):
        monkeypatch.setattr(module, "all_runtimes", faulty_worker.runtimes)


@pytest.mark.usefixtures("faulty")
def test_four_faults_are_four_reasons_and_the_rest_is_complete(tmp_path: Path) -> None:
    names = ["ort-cpu", *faulty_worker.FAULTS]
    plan = load("quick", models=["lstm"], size="tiny", runtimes=names, seq=",".join(map(str, LENGTHS)), past="4")
    planned = replace(plan, past=())  # forward passes alone
    for _ in Runner(planned, tmp_path / "run").run():
        pass
    run = read_run(tmp_path / "run")
    assert run.problems == ()
    rows = {(m.case.runtime, m.case.seq): m for m in run.measurements}
    assert len(rows) == len(run.measurements) == len(names) * len(LENGTHS)
    for n in LENGTHS:
        assert (rows["ort-cpu", n].status, rows["ort-cpu", n].reason) == ("ok", None)
        assert all(rows[name, n].status == "failed" and not rows[name, n].blocks_ns for name in faulty_worker.FAULTS)
        assert "killed by SIGSEGV" in str(rows["crash", n].reason)
        assert "Unable to allocate" in str(rows["eat", n].reason)
        assert "outputs wrong: " in str(rows["falsify", n].reason)
    assert "no answer to 'stage' within 10 s" in str(rows["hang", LENGTHS[0]].reason)
    assert "not tried: no answer to 'stage' within 10 s at a shorter length" in str(rows["hang", LENGTHS[1]].reason)
