"""Worker processes: they answer, say why not, and their end is noticed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from isorun.bench.client import Worker, WorkerDied, WorkerError

from ..conftest import Exported


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    with Worker(tmp_path / "log", threads=1) as running:
        yield running


def test_a_request_that_fails_is_a_reason_and_the_worker_lives_on(worker: Worker) -> None:
    for _ in range(2):
        with pytest.raises(WorkerError, match="block: nothing is loaded") as caught:
            worker.ask("block", seconds=0.1)
        assert not isinstance(caught.value, WorkerDied)


def test_an_unexpected_exception_is_a_reason_too(worker: Worker) -> None:
    with pytest.raises(WorkerError, match="nonsense: KeyError"):
        worker.ask("nonsense")


def test_a_missing_artifact_is_a_reason(worker: Worker, tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"no artifact\.json"):
        worker.ask("load", folder=str(tmp_path), runtime="ort-cpu", threads=1)


def test_a_killed_worker_is_noticed_and_how_it_ended(worker: Worker) -> None:
    with pytest.raises(WorkerError):
        worker.ask("block", seconds=0.1)  # it is up
    os.kill(worker._process.pid, signal.SIGSEGV)
    with pytest.raises(WorkerDied, match="SIGSEGV"):
        worker.ask("block", seconds=0.1)


def test_a_worker_that_does_not_answer_is_killed(worker: Worker) -> None:
    os.kill(worker._process.pid, signal.SIGSTOP)
    with pytest.raises(WorkerDied, match=r"no answer to 'block' within 0\.2 s"):
        worker.ask("block", timeout_s=0.2, seconds=0.1)
    assert worker._process.poll() is not None


def test_a_closed_worker_leaves_no_process(tmp_path: Path) -> None:
    with Worker(tmp_path / "log", threads=1) as running:
        pid = running._process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: there is none to choose")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("runtime", ["ort-cpu", "torch"])
def test_each_thread_that_computes_has_a_core_of_its_own(
    tmp_path: Path, exported: Exported, runtime: str, threads: int
) -> None:
    with Worker(tmp_path / "log", threads) as worker:
        worker.ask("load", folder=str(exported("gpt2", "forward").folder), runtime=runtime, threads=threads)
        worker.ask("stage", sizes={"batch": 1, "sequence": 100}, truth=None)
        worker.ask("block", seconds=0.1)
        cores = sorted(os.sched_getaffinity(0))[-threads:]
        assert worker.ask("facts")["placement"]["facts"]["affinity"] == ", ".join(map(str, cores))
        allowed = [os.sched_getaffinity(int(task.name)) for task in Path(f"/proc/{worker._process.pid}/task").iterdir()]
        for core in cores:
            assert {core} in allowed


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: no thread waits for another")
@pytest.mark.parametrize("runtime", ["ort-cpu", "torch"])
def test_after_its_answer_a_worker_leaves_the_cores_alone(tmp_path: Path, exported: Exported, runtime: str) -> None:
    """Threads that wait awake for more work would take a core from the process that is timed next."""
    with Worker(tmp_path / "log", threads=2) as worker:
        worker.ask("load", folder=str(exported("gpt2", "forward").folder), runtime=runtime, threads=2)
        worker.ask("stage", sizes={"batch": 4, "sequence": 100}, truth=None)
        worker.ask("block", seconds=0.1)
        before = worked(worker._process.pid)
        time.sleep(0.2)
        assert worked(worker._process.pid) - before < 5e6


def worked(pid: int) -> int:
    """Nanoseconds that the threads of a process have run."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())
