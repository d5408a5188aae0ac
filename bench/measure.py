"""Measuring one exported model on all runtimes: a process each, alternating in blocks, outputs checked first.

One runtime may run in a second process as well, the control: what lies between it and its twin is not the runtime's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from ..runtimes.base import Placement
from .beside import SUFFIX, Base, plain
from .client import Worker, WorkerDied, WorkerError, WorkerHung, WorkerUnsuited
from .environment import free_bytes
from .records import PARITY_LIMIT, Case, Measurement, OutputError, Status
from .timing import narrow_enough
from .work import Work

TIMEOUT_S = 120.0  # a runtime that needs longer for one request is taken for hung
ROUNDS = 15  # blocks a runtime that a budget is cut into
RATIO = 0.015  # by its blocks: half-width of the interval of a ratio at which a difference of twice as much is seen
MEMORY_SHARE = 0.9  # of the free memory, for one runtime's process
TWIN = "twin"  # among the processes of a model, the second one of the control's runtime
TWIN_SHARE = 0.25  # of the free memory, which a graph may need for its twin to run as well
FEWEST = 5  # rounds before precision can be judged, and the fewest whatever the budget


@dataclass
class Trial:
    """One case on one runtime, while it is being measured."""

    errors: tuple[OutputError, ...] = ()
    blocks: list[tuple[int, ...]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None

    def median_ns(self) -> float:
        """The median of the block medians so far; 0 without any."""
        medians = [median(block) for block in self.blocks if block]
        return median(medians) if medians else 0.0


class Bench:
    """The processes of one exported model, one for each runtime and a second one for that of the control, if any; those
    of RUNTIME@base belong to the environment `base`.

    Use as a context manager, which ends them.
    """

    def __init__(
        self,
        model: Path,
        runtimes: Sequence[str],
        threads: int,
        logs: Path,
        *,
        control: str | None = None,
        base: Base | None = None,
    ) -> None:
        self._model = model
        self._base = base
        self._runtimes = runtimes
        self._control = control
        self._processes = {name: name for name in runtimes} | ({TWIN: control} if control else {})
        self._threads = threads
        self._logs = logs
        self._workers: dict[str, Worker] = {}
        self._prepare_s: dict[str, float] = {}
        self._refused: dict[str, WorkerError] = {}
        self._hung: dict[str, str] = {}
        self._random = random.Random(0)

    def __enter__(self) -> Bench:
        with ThreadPoolExecutor(len(self._processes)) as pool:
            list(pool.map(self._load, self._processes))
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.close()

    def turn_to(self, model: Path) -> None:
        """Load another model into the processes that are there."""
        self._model = model
        self._refused.clear()
        self._hung.clear()
        for name in self._processes:
            self._load(name)

    def call_ns(self, budget_s: float) -> dict[str, float | None]:
        """Nanoseconds of a call of the loaded model on an input of the declared shape, by runtime."""
        trials, _ = self._trials(self._runtimes, {}, None, budget_s)
        return {name: trial.median_ns() or None for name, trial in trials.items()}

    def rate(self, flops: int, budget_s: float) -> dict[str, float | None]:
        """The most operations per nanosecond (Gflop/s) that each runtime reaches on an input of the declared shape."""
        trials, _ = self._trials(self._runtimes, {}, None, budget_s)
        least = {name: min((ns for block in trial.blocks for ns in block), default=0) for name, trial in trials.items()}
        return {name: round(flops / ns, 1) if ns else None for name, ns in least.items()}

    def measure(
        self, cases: Mapping[str, Case], shape: Mapping[str, int], truth: Path, budget_s: float, work: Work
    ) -> list[Measurement]:
        """One length on every runtime (`cases` by runtime name) at the sizes `shape`, within about `budget_s`."""
        roomy = sum(work.predicted.values()) <= TWIN_SHARE * free_bytes()
        trials, stopped = self._trials(self._processes if roomy else self._runtimes, shape, truth, budget_s)
        twin = trials.pop(TWIN, None)
        twins = {self._control: tuple(twin.blocks)} if twin and twin.reason is None else {}
        return [
            self._measurement(cases[name], trial, work, stopped, twins.get(name, ())) for name, trial in trials.items()
        ]

    def _trials(
        self, names: Iterable[str], shape: Mapping[str, int], truth: Path | None, budget_s: float
    ) -> tuple[dict[str, Trial], str]:
        trials = {name: Trial(reason=self._reason(name)) for name in names}
        for name, trial in trials.items():
            self._stage(name, trial, shape, truth)
        stopped = self._time(trials, budget_s)
        for name, trial in trials.items():
            if trial.reason is None:
                trial.facts = self._ask(name, trial, "facts")
        return trials, stopped

    def _stage(self, name: str, trial: Trial, shape: Mapping[str, int], truth: Path | None) -> None:
        """Put the inputs in place and compare the outputs; a trial with wrong outputs ends here."""
        trial.reason = trial.reason or self._hung.get(name)
        if trial.reason is None and name not in self._workers:
            self._load(name)  # the last case killed it
            trial.reason = self._reason(name)
            self._refused.pop(name, None)
        if trial.reason is not None:
            return
        answer = self._ask(name, trial, "stage", sizes=dict(shape), truth=str(truth) if truth else None)
        trial.errors = tuple(OutputError(**error) for error in answer.get("errors", ()))
        trial.reason = trial.reason or wrong(trial.errors)

    def _time(self, trials: Mapping[str, Trial], budget_s: float) -> str:
        """Alternate blocks in shuffled order; returns why it stopped, which the twin has no say in."""
        began = time.monotonic()
        rounds = 0
        while any(trial.reason is None for name, trial in trials.items() if name != TWIN):
            ready = [name for name, trial in trials.items() if trial.reason is None]
            for name in self._random.sample(ready, len(ready)):
                answer = self._ask(name, trials[name], "block", seconds=budget_s / (ROUNDS * len(ready)))
                trials[name].blocks.append(tuple(answer.get("ns", ())))
            rounds += 1
            if rounds >= FEWEST:
                timed = [trials[name].blocks for name in ready if name != TWIN]
                if precise([[median(block) for block in blocks if block] for blocks in timed]):
                    return "precision"
                if time.monotonic() - began >= budget_s:
                    return "budget"
        return "failure"

    def _measurement(
        self, case: Case, trial: Trial, work: Work, stopped: str, twin_ns: tuple[tuple[int, ...], ...]
    ) -> Measurement:
        if trial.reason is not None:
            unsuited = isinstance(self._refused.get(case.runtime), WorkerUnsuited)
            status: Status = "skipped" if unsuited else "failed"
            return Measurement(case=case, status=status, reason=trial.reason, errors=trial.errors)
        return Measurement(
            case=case,
            status="ok",
            blocks_ns=tuple(trial.blocks),
            twin_ns=twin_ns,
            prepare_s=self._prepare_s[case.runtime],
            peak_bytes=trial.facts["peak_bytes"],
            flops=work.flops,
            errors=trial.errors,
            placement=Placement(**trial.facts["placement"]),
            stopped=stopped,
            dense_flops=work.dense_flops,
            graph_flops=work.graph_flops,
            graph_bytes=work.graph_bytes,
            memory={**trial.facts.get("memory", {}), **work.predicted} or None,
            expected_ns=work.expected_ns(case.runtime),
        )

    def _load(self, name: str) -> None:
        """Start a process and load the model on its runtime, or remember why it refuses."""
        runtime = self._processes[name]
        worker = self._workers.get(name) or self._start(name, runtime)
        self._workers[name] = worker
        try:
            answer = worker.ask(
                "load",
                TIMEOUT_S,
                folder=str(self._model),
                runtime=plain(runtime),
                threads=self._threads,
                memory_bytes=_memory(runtime),
            )
            self._prepare_s[name] = answer["prepare_s"]
        except WorkerError as error:
            self._refused[name] = error
            self._drop(name)

    def _start(self, name: str, runtime: str) -> Worker:
        """A process of the environment that a runtime belongs to."""
        python = self._base.python if self._base and runtime.endswith(SUFFIX) else None
        return Worker(self._logs / f"{self._model.name}-{name}.log", self._threads, python)

    def _reason(self, name: str) -> str | None:
        """Why a runtime refused the model; None where it did not."""
        return str(self._refused[name]) if name in self._refused else None

    def _ask(self, name: str, trial: Trial, op: str, **arguments: Any) -> dict[str, Any]:
        """An answer, or an empty one with the reason noted in the trial."""
        try:
            return self._workers[name].ask(op, TIMEOUT_S, **arguments)
        except WorkerError as error:
            trial.reason = str(error)
            if isinstance(error, WorkerHung):
                self._hung[name] = f"not tried: {error} at a shorter length"
            if isinstance(error, WorkerDied):
                self._drop(name)
            return {}

    def _drop(self, name: str) -> None:
        self._workers.pop(name).close()


def precise(medians: Sequence[Sequence[float]]) -> bool:
    """Whether every time is known well enough, and every ratio to the first runtime well enough to tell 3 % apart.

    What lies between the processes (`twins`) may be more than that, but no further block would make it less.
    """
    if not all(narrow_enough(times) for times in medians):
        return False
    first, *others = medians
    ratios = ([base / time for base, time in zip(first, times, strict=False)] for times in others)
    return all(narrow_enough(found, relative=RATIO) for found in ratios)


def _memory(runtime: str) -> int | None:
    """What the process of a runtime may allocate; on CUDA address space says nothing about memory."""
    return None if on_cuda(runtime) else int(free_bytes() * MEMORY_SHARE)


def on_cuda(runtime: str) -> bool:
    """Whether a runtime computes on a GPU, by its name: asking the runtime itself would load its library."""
    return "cuda" in runtime or "tensorrt" in runtime


def wrong(errors: Sequence[OutputError]) -> str | None:
    """What is wrong with outputs, worst first; None when each is as near to truth as its precision allows."""
    for error in errors:
        if error.detail is not None:
            return f"outputs wrong: {error.name}: {error.detail}"
    worst = max(errors, key=lambda error: error.ratio or 0.0, default=None)
    if worst is None or worst.ratio is None or worst.ratio <= PARITY_LIMIT:
        return None
    return (
        f"outputs wrong: {worst.name} is {worst.ratio:.3g} times as far from float64 truth "
        f"as torch in the same precision (limit {PARITY_LIMIT:g})"
    )
