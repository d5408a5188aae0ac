"""The one loop: prepare everything, then measure each model on all runtimes.

Nothing is timed while anything is exported. Each result is written and flushed as soon as it is known. A runtime that
refuses, crashes or hangs is a row with a reason, and the run goes on.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..models.cost import flops
from ..models.yardstick import FLOPS
from ..runtimes import all_runtimes
from .environment import cores, describe
from .measure import Bench
from .prepare import YARDSTICK, Preparation
from .records import Case, Measurement, Verdict, append, write_header
from .suite import Group, Suite, case, groups, sizes

LEAST_S, MOST_S = 0.2, 2.0  # time for the blocks of one length on all runtimes
AROUND = 2.0  # staging, warm-up and loading cost about as much as the blocks themselves


@dataclass(frozen=True)
class Step:
    """Progress: what was just done, how much of how much, and the records that came of it."""

    label: str
    done: int
    total: int
    records: tuple[Measurement | Verdict, ...] = ()


class Runner:
    """One run of a suite into a folder that does not exist yet."""

    def __init__(self, suite: Suite, folder: Path) -> None:
        self.suite = suite
        self.folder = folder
        self.missing = {name: reason for name in suite.runtimes if (reason := all_runtimes()[name].missing())}
        self._present = [name for name in suite.runtimes if name not in self.missing]
        self._groups = groups(suite)
        self._threads = cores()
        self._began = time.monotonic()
        self._header: dict[str, Any] = {}
        self._left = sum(len(group.lengths) for group in self._groups)
        self.total = len(self._groups) + self._left
        self._done = 0

    def run(self) -> Generator[Step, None, None]:
        """Do it all, a step at a time; closing the iterator ends the workers and keeps what was measured."""
        work = self.folder / "work"
        work.mkdir(parents=True)
        self._open_header()
        with (self.folder / "records.jsonl").open("a") as stream:
            try:
                for step in self._steps(Preparation(self.suite, self._groups, work, self._threads)):
                    for record in step.records:
                        append(stream, record)
                    yield step
                self._header["finished"] = _now()
            finally:
                self._header["elapsed_s"] = round(time.monotonic() - self._began, 1)
                write_header(self.folder, self._header)
                shutil.rmtree(work, ignore_errors=True)

    def _steps(self, preparation: Preparation) -> Iterator[Step]:
        failed: dict[str, str] = {}
        for prepared in preparation.run():
            if prepared.reason is not None:
                failed[prepared.name] = prepared.reason
            if prepared.name != YARDSTICK:
                yield self._step(f"exported {prepared.name}", [prepared.verdict] if prepared.verdict else [])
        if YARDSTICK not in failed:
            with Bench(preparation.model(YARDSTICK), self._present, self._threads, preparation.folder) as bench:
                self._header["environment"]["matmul_gflops"] = bench.rate(FLOPS, LEAST_S)
        write_header(self.folder, self._header)
        for group in self._groups:
            if group.name in failed:
                for length in group.lengths:
                    yield self._unmeasured(group, length, "failed", failed[group.name])
            else:
                yield from self._measure(group, preparation)

    def _measure(self, group: Group, preparation: Preparation) -> Iterator[Step]:
        with Bench(preparation.model(group.name), self._present, self._threads, preparation.folder) as bench:
            for length in group.lengths:
                reason = group.too_long(length)
                if reason is not None:
                    yield self._unmeasured(group, length, "skipped", reason)
                    continue
                cases = {name: self._case(group, length, name) for name in self._present}
                shape = sizes(self._case(group, length, ""))
                work = flops(group.config, group.phase, shape)
                measured = bench.measure(cases, shape, preparation.truth(group, length), self._share_s(), work)
                self._left -= 1
                yield self._step(f"{group.name} {length}", [*measured, *self._rows(group, length, self.missing)])

    def _share_s(self) -> float:
        """What is left of the budget, in equal parts for the lengths that are left."""
        left = self.suite.budget_s - (time.monotonic() - self._began)
        return min(MOST_S, max(LEAST_S, left / self._left / AROUND))

    def _unmeasured(self, group: Group, length: int, status: Any, reason: str) -> Step:
        """A row with the reason for each runtime that is here, and its own reason for each that is not."""
        self._left -= 1
        rows = [
            Measurement(case=self._case(group, length, name), status=status, reason=reason) for name in self._present
        ]
        return self._step(f"{group.name} {length}", [*rows, *self._rows(group, length, self.missing)])

    def _rows(self, group: Group, length: int, reasons: dict[str, str]) -> list[Measurement]:
        return [
            Measurement(case=self._case(group, length, name), status="skipped", reason=reason)
            for name, reason in reasons.items()
        ]

    def _case(self, group: Group, length: int, runtime: str) -> Case:
        return case(self.suite, group, length, runtime)

    def _step(self, label: str, records: list[Measurement | Verdict]) -> Step:
        self._done += 1
        return Step(label, self._done, self.total, tuple(records))

    def _open_header(self) -> None:
        environment = describe(self._threads)
        environment["runtimes_missing"] = self.missing
        self._header = {
            "name": self.folder.name,
            "created": _now(),
            "isorun": environment["versions"].get("isorun"),
            "suite": asdict(self.suite),
            "environment": environment,
            "finished": None,
            "elapsed_s": None,
        }
        write_header(self.folder, self._header)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
