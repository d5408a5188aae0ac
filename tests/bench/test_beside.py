"""Another environment beside this one: asked what it has, measured in the same rounds, resumed with the same alone."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from isorun.bench import beside
from isorun.bench.beside import Base, ask
from isorun.bench.client import Worker, WorkerDied
from isorun.bench.environment import versions
from isorun.bench.records import Run
from isorun.bench.runfolder import RunError
from isorun.bench.runner import Runner
from isorun.bench.suite import SuiteError, load

from .fake_worker import Behaviour, FakeWorker, finish

BASE = Base("/opt/base/bin/python", {"isorun": "0.1.0", "onnxruntime": "1.31.0"}, {"torch": "PyTorch is not installed"})
NAMES = ("torch", "ort-cpu", "torch@base", "ort-cpu@base")


def test_an_environment_says_what_it_has() -> None:
    found = ask(sys.executable, ["ort-cpu", "abacus"])
    assert found.versions == versions()
    assert found.missing == {"abacus": "abacus is not known there"}
    assert Path(found.python).is_absolute()


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("no-such-python", "no such program"),
        ("true", "isorun cannot run there: the worker process ended (exit status 0)"),
    ],
)
def test_what_is_no_environment_is_refused(python: str, said: str) -> None:
    with pytest.raises(SuiteError) as caught:
        ask(python, ["ort-cpu"])
    assert str(caught.value).startswith(f"--base {python}: {said}")


def test_another_harness_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "versions", lambda: {"isorun": "99"})
    with pytest.raises(SuiteError, match="and 99 here; the same one has to time both"):
        ask(sys.executable, ["ort-cpu"])


def test_another_interpreter_does_not_get_our_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Worker(tmp_path / "ours", threads=1) as ours, pytest.raises(WorkerDied, match="exit status 3"):
        ours.ask("about", runtimes=[])
    with Worker(tmp_path / "other", threads=1, python=sys.executable) as other:
        assert other.ask("about", runtimes=[])["versions"] == versions()


def measured(folder: Path, base: Base = BASE) -> Run:
    return finish(Runner(load("quick", models=["gpt2"], seq="16,32", past="8"), folder, base=base))


@pytest.mark.usefixtures("workers")
def test_every_length_has_a_row_for_both_environments(tmp_path: Path) -> None:
    FakeWorker.behaviours = {"ort-cpu@base": Behaviour(call_ns=lambda n: 3000.0 * n)}
    run = measured(tmp_path / "run")
    assert Counter(m.case.runtime for m in run.measurements) == dict.fromkeys(NAMES, 3)
    found = {m.case.runtime: m for m in run.measurements if m.case.length == 16}
    assert (found["torch@base"].status, found["torch@base"].reason) == ("skipped", "PyTorch is not installed")
    assert found["ort-cpu@base"].median_ns == pytest.approx(3 * found["ort-cpu"].median_ns, rel=0.05)
    assert len(found["ort-cpu@base"].blocks_ns) == len(found["ort-cpu"].blocks_ns)
    assert run.header["environment"]["base"] == {"versions": dict(BASE.versions)}
    assert set(run.header["environment"]["matmul_gflops"]) == {"torch", "ort-cpu", "ort-cpu@base"}
    blocks = [process for op, process in FakeWorker.asked if op == "block"]
    assert Counter(blocks)["ort-cpu@base"] == Counter(blocks)["ort-cpu"]


@pytest.mark.usefixtures("workers")
def test_a_resumed_run_wants_its_base_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    whole = measured(folder)
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    (folder / "records.jsonl").write_text("".join(lines[:-2]))
    with pytest.raises(RunError, match="beside another environment: name its Python with --base again"):
        Runner.resume(folder)
    monkeypatch.setattr("isorun.bench.runner.ask", lambda *_: replace(BASE, versions={"onnxruntime": "1.30.0"}))
    with pytest.raises(RunError, match=r"base was .*1\.31\.0.* and is .*1\.30\.0"):
        Runner.resume(folder, python="python")
    monkeypatch.setattr("isorun.bench.runner.ask", lambda *_: BASE)
    again = finish(Runner.resume(folder, python="python"))
    assert {m.case for m in again.measurements} == {m.case for m in whole.measurements}
