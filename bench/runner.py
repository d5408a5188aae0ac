"""The one loop: prepare everything, then measure each model on all runtimes.

Nothing is timed while anything is exported. Each result is written and flushed as soon as it is known. A runtime that
refuses, crashes or hangs is a row with a reason, and the run goes on. A run that was killed goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..models.cost import dense_flops, flops
from ..runtimes import all_runtimes
from . import yardsticks
from .beside import Base, ask, columns, named
from .environment import cores, describe
from .exported import facts, joined
from .measure import Bench
from .plan import LEAST_CASE_S, Pace, Plan
from .plausible import ceiling, refusal
from .prepare import Preparation, Prepared
from .records import Case, Measurement, Run, Verdict
from .resume import alone, append, mend, refuse_other_place, suite_of
from .runfolder import RunError, read_run, write_header
from .suite import Group, Point, Suite, SuiteError, groups, sizes
from .twins import control
from .work import Work

PREDICTED = ("weights", "cache", "activations")  # what a graph says about memory


@dataclass(frozen=True)
class Step:
    """Progress: what was just done, how much of how much, and the records that came of it."""

    label: str
    done: int
    total: int
    records: tuple[Measurement | Verdict, ...] = ()


class Runner:
    """One run of a suite into a folder that does not exist yet, or on from where an `earlier` run stopped.

    Raises:
        SuiteError: the budget that the suite is limited to is too small for one case.
    """

    def __init__(self, suite: Suite, folder: Path, *, earlier: Run | None = None, base: Base | None = None) -> None:
        if suite.limited and suite.budget_s < LEAST_CASE_S:
            raise SuiteError(f"a budget of {suite.budget_s:g} s is too small: one case needs about {LEAST_CASE_S:g} s")
        self.suite = suite
        self.folder = folder
        self._base = base
        self.names = columns(suite.runtimes, base)
        self.missing = {name: reason for name in suite.runtimes if (reason := all_runtimes()[name].missing())}
        if base:
            self.missing |= {named(name): reason for name, reason in base.missing.items()}
        self._present = [name for name in self.names if name not in self.missing]
        self._earlier = earlier
        self._groups = self._remaining()
        self._threads = cores()
        self._header: dict[str, Any] = {}
        self._lines: dict[Case, list[Measurement]] = {}
        points = sum(len(group.points) for group in self._groups)
        self._plan = Plan(suite.budget_s, points, limited=suite.limited)
        self.total = len(self._groups) + points
        self._done = 0

    @classmethod
    def resume(cls, folder: Path, *, limit_s: float | None = None, python: str | None = None) -> Runner:
        """A run that goes on with what is missing in `folder`, on the machine and with the versions that it began with.

        With `limit_s` it is limited to so many further seconds. `python` is the interpreter of the base, which is not
        taken from the folder: whoever made that could name any program.

        Raises:
            RunError: the folder holds no run, another process is at it, or it was begun elsewhere.
            SuiteError: the base cannot run.
        """
        run = read_run(folder)
        suite = suite_of(run)
        base = ask(python, suite.runtimes) if python else None
        refuse_other_place(run, cores(), base)
        if limit_s is not None:
            suite = replace(suite, budget_s=limit_s, limited=True)
        with alone(folder):
            return cls(suite, folder, earlier=mend(folder, columns(suite.runtimes, base)), base=base)

    def run(self) -> Generator[Step, None, None]:
        """Do it all, a step at a time; closing the iterator ends the workers and keeps what was measured.

        Raises:
            RunError: the disk is full; what was measured is kept.
        """
        self._open_header()
        work = self.folder / "work"
        with alone(self.folder):
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            try:
                for step in self._steps(Preparation(self._groups, work, self._threads, self._plan)):
                    append(self.folder / "records.jsonl", *step.records)
                    yield step
                self._header["finished"] = _now()
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                again = f"make room, then isorun bench --resume {self.folder}"
                raise RunError(f"{self.folder}: the disk is full; what was measured is kept: {again}") from None
            finally:
                shutil.rmtree(work, ignore_errors=True)
                before = self._earlier.header.get("elapsed_s") or 0.0 if self._earlier else 0.0
                self._header["elapsed_s"] = round(before + self._plan.elapsed_s(), 1)
                with contextlib.suppress(OSError):  # the header from before is still there
                    write_header(self.folder, self._header)

    def _steps(self, preparation: Preparation) -> Iterator[Step]:
        found: dict[str, Prepared] = {}
        known = {_graph(verdict) for verdict in self._earlier.verdicts} if self._earlier else set()
        machine = self._header["environment"]
        needed = yardsticks.missing(machine, self.suite.dtypes, self._present)
        names = [yardstick.name for yardstick in needed]
        for prepared in preparation.run(needed):
            found[prepared.name] = prepared
            verdict = prepared.verdict
            if prepared.name not in names:
                new = [verdict] if verdict and _graph(verdict) not in known else []
                yield self._step(f"exported {prepared.name}", new)
        there = [yardstick for yardstick in needed if found[yardstick.name].reason is None]
        yardsticks.measure(machine, there, preparation.folder, self._present, self._threads, self._base)
        exports = [told for group in self._groups if (told := facts(group, preparation.model(group.name)))]
        self._header["exports"] = joined(self._header.get("exports", ()), exports)
        write_header(self.folder, self._header)
        for group in self._groups:
            yield from self._group(group, found[group.name], preparation)

    def _group(self, group: Group, prepared: Prepared, preparation: Preparation) -> Iterator[Step]:
        if prepared.reason is not None:
            status = "skipped" if prepared.left_out else "failed"
            for point in group.points:
                yield self._unmeasured(group, point, status, prepared.reason, left_out=prepared.left_out)
            return
        pace = Pace()
        for line in group.lines:  # in processes of its own: what a long call left in memory is not another batch's
            model, twinned = preparation.model(group.name), control(self._present)
            bench = Bench(model, self._present, self._threads, preparation.folder, control=twinned, base=self._base)
            with bench:
                for point in line:
                    yield self._point(group, point, prepared, preparation.truth(group, point), bench, pace)

    def _point(self, group: Group, point: Point, prepared: Prepared, truth: Path, bench: Bench, pace: Pace) -> Step:
        reason = group.too_long(point.length, prepared.positions)
        if reason is not None:
            return self._unmeasured(group, point, "skipped", reason)
        if point in prepared.untrue:
            return self._unmeasured(group, point, "failed", prepared.untrue[point])
        shape = sizes(group.case(point, ""))
        work = self._work(group, point, prepared, shape)
        reason = self._plan.refuses(pace.expected_s(work.amount))
        if reason is not None:
            return self._unmeasured(group, point, "skipped", reason, left_out=True)
        cases = {name: group.case(point, name) for name in self._present}
        measured = bench.measure(cases, shape, truth, self._plan.share_s(), work)
        pace.saw(work.amount, sum((m.median_ns or 0.0) + m.twin_median_ns for m in measured) / 1e9)
        measured = [self._believed(m) for m in measured]
        self._plan.done()
        return self._step(f"{group.name} {point}", [*measured, *self._rows(group, point, self.missing)])

    def _work(self, group: Group, point: Point, prepared: Prepared, shape: dict[str, int]) -> Work:
        """What a call has to do: by the model's structure, and by its graph at the rates of this machine."""
        cost = prepared.costs.get(point, {})
        return Work(
            point.batch,
            point.length,
            flops(group.config, group.phase, shape) if group.config else None,
            dense_flops=dense_flops(group.config, group.phase, shape) if group.config else None,
            graph_flops=cost.get("flops"),
            graph_bytes=cost.get("bytes"),
            predicted={f"predicted_{kind}": cost[kind] for kind in PREDICTED if kind in cost},
            rates=yardsticks.rates(self._header["environment"], group.dtype),
        )

    def _believed(self, m: Measurement) -> Measurement:
        """A measurement, or a failed one that keeps its samples when its time cannot be."""
        line = self._lines.setdefault(replace(m.case, seq=0, past=0), [])
        peak = ceiling(self._header["environment"], m.case.dtype)
        reason = refusal(m, line, peak) if m.status == "ok" else None
        line.append(m)
        return replace(m, status="failed", reason=reason) if reason else m

    def _unmeasured(self, group: Group, point: Point, status: Any, reason: str, *, left_out: bool = False) -> Step:
        """A row with the reason for each runtime that is here, and its own reason for each that is not."""
        self._plan.done()
        stopped = "budget" if left_out else None
        rows = [
            Measurement(case=group.case(point, name), status=status, reason=reason, stopped=stopped)
            for name in self._present
        ]
        return self._step(f"{group.name} {point}", [*rows, *self._rows(group, point, self.missing)])

    def _rows(self, group: Group, point: Point, reasons: dict[str, str]) -> list[Measurement]:
        return [
            Measurement(case=group.case(point, name), status="skipped", reason=reason)
            for name, reason in reasons.items()
        ]

    def _step(self, label: str, records: Sequence[Measurement | Verdict]) -> Step:
        self._done += 1
        return Step(label, self._done, self.total, tuple(records))

    def _remaining(self) -> list[Group]:
        """The groups with the points that have no row yet; a group that is complete is not exported again."""
        done = {m.case.point for m in self._earlier.measurements} if self._earlier else set()
        left = [
            replace(group, points=tuple(point for point in group.points if group.case(point, "") not in done))
            for group in groups(self.suite)
        ]
        return [group for group in left if group.points]

    def _open_header(self) -> None:
        """Write the header; a new folder appears with it or not at all."""
        if self._earlier:
            resumed = [*self._earlier.header.get("resumed", ()), _now()]
            self._header = {**self._earlier.header, "resumed": resumed, "finished": None}
            write_header(self.folder, self._header)
            return
        environment = describe(self._threads)
        environment["runtimes_missing"] = self.missing
        if self._base:
            environment["base"] = {"versions": dict(self._base.versions)}
        self._header = {
            "name": self.folder.name,
            "created": _now(),
            "isorun": environment["versions"].get("isorun"),
            "suite": asdict(self.suite),
            "environment": environment,
            "finished": None,
            "elapsed_s": None,
        }
        part = self.folder.with_name(f"{self.folder.name}.part")
        part.mkdir(parents=True)
        write_header(part, self._header)
        part.rename(self.folder)


def _graph(verdict: Verdict) -> tuple[str, ...]:
    return verdict.model, verdict.size, verdict.phase, verdict.dtype


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
