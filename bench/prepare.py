"""Before anything is timed: export each model, ask whether the graph is its source, and find the truth of each case."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..models.phases import example_sizes
from .client import Worker, WorkerDied, WorkerError
from .records import Verdict
from .suite import Group, Suite, case, sizes

TIMEOUT_S = 600.0  # an export that needs longer is taken for hung
YARDSTICK = "matmul"


@dataclass(frozen=True)
class Prepared:
    """One export: its verdict, or the reason why there is no model to measure."""

    name: str
    verdict: Verdict | None = None
    reason: str | None = None


class Preparation:
    """The exports of a run, on as many workers as there are cores."""

    def __init__(self, suite: Suite, groups: list[Group], folder: Path, lanes: int) -> None:
        self.suite = suite
        self.groups = groups
        self.folder = folder
        self._lanes = lanes
        self._workers: list[Worker] = []
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()

    def run(self) -> Iterator[Prepared]:
        """Prepare every group and the yardstick, longest exports first, in the order in which they are done."""
        longest_first = sorted(self.groups, key=lambda group: -example_sizes(group.config)["sequence"])
        pool = ThreadPoolExecutor(self._lanes)
        try:
            jobs = [pool.submit(self._group, group) for group in longest_first]
            jobs.append(pool.submit(self._yardstick))
            yield from (job.result() for job in as_completed(jobs))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            self._close()  # what still waits for an answer gets none, and ends
            pool.shutdown(wait=True)
            self._close()  # a job that was just starting may have made one more

    def model(self, name: str) -> Path:
        """The folder of an export."""
        return self.folder / name

    def truth(self, group: Group, length: int) -> Path:
        """The truth file of one case."""
        return self.folder / f"{group.name}-{length}.npz"

    def _group(self, group: Group) -> Prepared:
        """Export a group, write the truth of each case that can run, and ask whether it is the same function."""
        worker = self._take()
        try:
            source = {"kind": "preset", "name": group.config.name, "size": self.suite.size, "seed": 0}
            folder = str(self.model(group.name))
            worker.ask("export", TIMEOUT_S, folder=folder, source=source, phase=group.phase)
            for length in group.lengths:
                if group.too_long(length) is None:
                    shape = sizes(case(self.suite, group, length, ""))
                    worker.ask("truth", TIMEOUT_S, folder=folder, sizes=shape, file=str(self.truth(group, length)))
            prepared = Prepared(group.name, verdict=self._verdict(group, worker))
        except WorkerError as error:
            prepared = Prepared(group.name, reason=f"export failed: {error}")
        self._give_back(worker)
        return prepared

    def _yardstick(self) -> Prepared:
        worker = self._take()
        try:
            source = {"kind": "module", "name": "isorun.models.yardstick:matmul"}
            worker.ask("export", TIMEOUT_S, folder=str(self.model(YARDSTICK)), source=source, phase="forward")
            prepared = Prepared(YARDSTICK)
        except WorkerError as error:
            prepared = Prepared(YARDSTICK, reason=str(error))
        self._give_back(worker)
        return prepared

    def _take(self) -> Worker:
        """A free worker, or a new one."""
        try:
            return self._free.get_nowait()
        except queue.Empty:
            worker = Worker(self.folder / f"export-{len(self._workers)}.log", threads=1)
            self._workers.append(worker)
            return worker

    def _give_back(self, worker: Worker) -> None:
        """Keep a worker for the next job if it is still there."""
        if worker.alive:
            self._free.put(worker)

    def _close(self) -> None:
        for worker in self._workers:
            worker.close()

    def _verdict(self, group: Group, worker: Worker) -> Verdict:
        """Is it the same function? An evaluation that fails is a verdict of its own, not the end of the case."""
        about: dict[str, Any] = {
            "model": group.config.name,
            "size": self.suite.size,
            "phase": group.phase,
            "dtype": "fp32",
            "check": "same function",
        }
        try:
            found = worker.ask("same_function", TIMEOUT_S, folder=str(self.model(group.name)))
        except WorkerDied:
            raise
        except WorkerError as error:
            return Verdict(**about, status="error", distance=None, limit=None, detail=str(error))
        shape = ", ".join(f"{axis} {size}" for axis, size in found["probe"].items())
        return Verdict(
            **about,
            status="pass" if found["distance"] <= found["limit"] else "fail",
            distance=found["distance"],
            limit=found["limit"],
            detail=f"graph and source in float64, left padding, {shape}: output {found['output']} differs most",
        )
