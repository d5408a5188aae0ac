"""Before anything is timed: export each model, ask whether the graph is its source, and find the truth of each case."""

from __future__ import annotations

import errno
import os
import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..models.phases import example_sizes
from .client import Worker, WorkerDied, WorkerError
from .plan import Plan
from .records import Verdict
from .suite import Group, Point, sizes
from .yardsticks import Yardstick

TIMEOUT_S = 600.0  # an export that needs longer is taken for hung


@dataclass(frozen=True)
class Prepared:
    """One export: its verdict, or the reason why there is no model to measure.

    `left_out` when the budget is the reason; `untrue` are the points without truth, with the reason; `costs` what the
    graph computes and moves at each point (see `graph_cost.Cost`), where that can be told; `positions` is where the
    table that the graph looks positions up in ends.
    """

    name: str
    verdict: Verdict | None = None
    reason: str | None = None
    left_out: bool = False
    untrue: dict[Point, str] = field(default_factory=dict)
    costs: dict[Point, dict[str, int]] = field(default_factory=dict)
    positions: int | None = None


class Preparation:
    """The exports of a run, on as many workers as there are cores."""

    def __init__(self, groups: list[Group], folder: Path, lanes: int, plan: Plan) -> None:
        self.groups = groups
        self.folder = folder
        self._lanes = lanes
        self._threads = max(1, lanes // max(1, len(groups)))  # few exports on many cores: the cores go to the truths
        self._plan = plan
        self._workers: list[Worker] = []
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()

    def run(self, yardsticks: Sequence[Yardstick]) -> Iterator[Prepared]:
        """Prepare every group, longest exports first, and `yardsticks`, in the order in which they are done.

        Raises:
            OSError: the disk is full, and no export can follow.
        """
        longest_first = sorted(self.groups, key=lambda group: -_trace_length(group))
        pool = ThreadPoolExecutor(self._lanes)
        try:
            jobs = [pool.submit(self._group, group) for group in longest_first]
            jobs += [pool.submit(self._yardstick, yardstick) for yardstick in yardsticks]
            yield from (job.result() for job in as_completed(jobs))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            self._close()  # what still waits for an answer gets none, and ends
            pool.shutdown(wait=True)
            self._close()  # a job that was just starting may have made one more

    def model(self, name: str) -> Path:
        """The folder of an export."""
        return self.folder / name

    def truth(self, group: Group, point: Point) -> Path:
        """The truth file of one case."""
        return self.folder / f"{group.name}-{point.batch}x{point.length}.npz"

    def _group(self, group: Group) -> Prepared:
        """Export a group, write the truth of each case that can run, and ask whether it is the same function."""
        late = self._plan.refuses_export()
        if late is not None:
            return Prepared(group.name, reason=late, left_out=True)
        worker = self._take()
        try:
            folder = str(self.model(group.name))
            source = asdict(group.source)
            made = worker.ask("export", TIMEOUT_S, folder=folder, source=source, phase=group.phase, dtype=group.dtype)
            verdict, costs = self._verdict(group, worker), self._costs(group, worker)
            prepared = Prepared(group.name, verdict=verdict, costs=costs, positions=made.get("positions"))
            for point in group.points:
                if group.too_long(point.length, prepared.positions) is None:
                    worker = self._truth(group, point, worker, prepared.untrue)
        except WorkerError as error:
            prepared = Prepared(group.name, reason=f"export failed: {_unless_full(error)}")
        self._give_back(worker)
        return prepared

    def _costs(self, group: Group, worker: Worker) -> dict[Point, dict[str, int]]:
        """What the graph costs at each point; nothing where a shape depends on data."""
        shapes = [sizes(group.case(point, "")) for point in group.points]
        try:
            found = worker.ask("costs", TIMEOUT_S, folder=str(self.model(group.name)), shapes=shapes)["costs"]
        except WorkerDied:
            raise
        except WorkerError:
            return {}
        return dict(zip(group.points, found, strict=True))

    def _truth(self, group: Group, point: Point, worker: Worker, untrue: dict[Point, str]) -> Worker:
        """Write the truth of one point, or note why there is none; returns a worker that lives."""
        shape = sizes(group.case(point, ""))
        file = str(self.truth(group, point))
        try:
            most_s = self._plan.truth_s(TIMEOUT_S)
            worker.ask("truth", most_s, folder=str(self.model(group.name)), sizes=shape, file=file)
        except WorkerError as error:
            untrue[point] = f"no truth to compare with: {_unless_full(error)}"
        return worker if worker.alive else self._take()

    def _yardstick(self, yardstick: Yardstick) -> Prepared:
        worker = self._take()
        try:
            source = {"kind": "module", "name": f"isorun.models.yardstick:{yardstick.factory}"}
            folder = str(self.model(yardstick.name))
            worker.ask("export", TIMEOUT_S, folder=folder, source=source, phase="forward", dtype=yardstick.dtype)
            prepared = Prepared(yardstick.name)
        except WorkerError as error:
            prepared = Prepared(yardstick.name, reason=str(_unless_full(error)))
        self._give_back(worker)
        return prepared

    def _take(self) -> Worker:
        """A free worker, or a new one."""
        try:
            return self._free.get_nowait()
        except queue.Empty:
            worker = Worker(self.folder / f"export-{len(self._workers)}.log", threads=self._threads)
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
            "model": group.model,
            "size": group.source.size,
            "phase": group.phase,
            "dtype": group.dtype,
            "check": "same function",
        }
        try:
            found = worker.ask("same_function", TIMEOUT_S, folder=str(self.model(group.name)))
        except WorkerDied:
            raise
        except WorkerError as error:
            return Verdict(**about, status="error", distance=None, limit=None, detail=str(error))
        shape = ", ".join(f"{axis} {size}" for axis, size in found["probe"].items())
        about["check"] = found["check"]
        return Verdict(
            **about,
            status="pass" if found["distance"] <= found["limit"] else "fail",
            distance=found["distance"],
            limit=found["limit"],
            detail=f"graph and source in float64, left padding, {shape}: output {found['output']} differs most",
        )


def _trace_length(group: Group) -> int:
    """The length at which a group is traced, by which the time of its export goes."""
    return example_sizes(group.config)["sequence"] if group.config else 0


def _unless_full(error: WorkerError) -> WorkerError:
    """The error itself, unless it says that the disk is full: that ends the run and is no reason for a row."""
    if os.strerror(errno.ENOSPC) in str(error):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return error
