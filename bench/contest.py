"""Several exports, or one under several session options, against each other at one size.

A process each, blocks in shuffled order, and ratios of blocks that pair in time: what slows one of a pair slows both.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from .client import Worker, WorkerError
from .measure import wrong
from .records import OutputError
from .timing import Comparison, Interval, compare, median_interval

ROUNDS = 9
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Entry:
    """An exported model on a runtime; `session` replaces the session options of its manifest."""

    folder: Path
    runtime: str = "ort-cpu"
    threads: int = 1
    session: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Result:
    """Medians of the blocks in seconds, and the bytes that a call takes besides weights and cache."""

    blocks: tuple[float, ...]
    working_bytes: int

    @property
    def seconds(self) -> float:
        """The median of the medians."""
        return median(self.blocks)

    @property
    def interval(self) -> Interval:
        """Of the median, at 95 %."""
        return median_interval(self.blocks)

    def over(self, base: Result) -> Comparison:
        """How much faster than another of the same contest."""
        return compare(base.blocks, self.blocks)


def contest(
    entries: Mapping[str, Entry],
    sizes: Mapping[str, int],
    *,
    truth: Path | None = None,
    budget_s: float = 20.0,
    rounds: int = ROUNDS,
) -> dict[str, Result | str]:
    """Time every entry at one size, within about `budget_s`; the reason in place of a result where one does not run.

    With a `truth` file (`truth.write`) an entry whose outputs are wrong is not timed.
    """
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="isorun-")))
        workers = {
            name: stack.enter_context(Worker(logs / f"{i}.log", entry.threads))
            for i, (name, entry) in enumerate(entries.items())
        }
        ring = _Ring(workers)
        for name, entry in entries.items():
            ring.load(name, entry, sizes, truth)
        ring.time(budget_s, rounds)
        return {name: ring.result(name) for name in entries}


class _Ring:
    """The processes of a contest; one that fails drops out with its reason."""

    def __init__(self, workers: Mapping[str, Worker]) -> None:
        self._workers = workers
        self._blocks: dict[str, list[float]] = {name: [] for name in workers}
        self._failed: dict[str, str] = {}

    def load(self, name: str, entry: Entry, sizes: Mapping[str, int], truth: Path | None) -> None:
        """Put a model and its inputs in place, check the outputs, and warm up."""
        session = None if entry.session is None else dict(entry.session)
        where = {"folder": str(entry.folder.resolve()), "runtime": entry.runtime, "threads": entry.threads}
        if self._ask(name, "load", **where, session=session):
            answer = self._ask(name, "stage", sizes=dict(sizes), truth=str(truth) if truth else None)
            reason = wrong([OutputError(**error) for error in answer.get("errors", ())])
            if reason is not None:
                self._failed[name] = reason

    def time(self, budget_s: float, rounds: int) -> None:
        """Alternate blocks in shuffled order."""
        shuffle = random.Random(0)
        for _ in range(rounds):
            ready = [name for name in self._workers if name not in self._failed]
            for name in shuffle.sample(ready, len(ready)):
                answer = self._ask(name, "block", seconds=budget_s / (rounds * len(ready)))
                if answer:
                    self._blocks[name].append(median(answer["ns"]) / 1e9)

    def result(self, name: str) -> Result | str:
        """What came of an entry."""
        facts = {} if name in self._failed else self._ask(name, "facts")
        if name in self._failed:
            return self._failed[name]
        return Result(tuple(self._blocks[name]), facts["memory"]["arena"] + facts["memory"]["activations"])

    def _ask(self, name: str, op: str, **arguments: Any) -> dict[str, Any]:
        try:
            return self._workers[name].ask(op, TIMEOUT_S, **arguments)
        except WorkerError as error:
            self._failed[name] = str(error)
            return {}
