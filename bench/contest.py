"""Several exports, or one under several session options, against each other at one size.

A process each, blocks in shuffled order, and ratios of blocks that pair in time: what slows one of a pair slows both.
Two processes of the same code stay apart for as long as they live (see `twins`), and a few exports have no control to
say by how much. So everything is done again in *fleets* of new processes: each gives one ratio of two entries, and the
interval is that of the fleets.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from .client import Worker, WorkerError
from .measure import wrong
from .records import OutputError
from .timing import Comparison, Interval, judge, median_interval

FLEETS = 5  # by default
FEWEST = 3  # however long they take: with fewer there is no word
ROUNDS = 3  # of blocks in a fleet
OVERTIME = 2.0  # times the budget after which no further fleet begins
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
    """Medians of the blocks of each fleet in seconds, and the bytes that a call takes besides weights and cache."""

    fleets: tuple[tuple[float, ...], ...]
    working_bytes: int

    @property
    def seconds(self) -> float:
        """The median over the fleets."""
        return median(map(median, self.fleets))

    @property
    def interval(self) -> Interval:
        """Of that median, at 95 %."""
        return median_interval([median(blocks) for blocks in self.fleets])

    def over(self, base: Result) -> Comparison:
        """How much faster than another of the same contest."""
        pairs = zip(base.fleets, self.fleets, strict=False)
        return judge([median(one / other for one, other in zip(*blocks, strict=False)) for blocks in pairs])


def contest(
    entries: Mapping[str, Entry],
    sizes: Mapping[str, int],
    *,
    truth: Path | None = None,
    budget_s: float = 20.0,
    fleets: int = FLEETS,
) -> dict[str, Result | str]:
    """Time every entry at one size; the reason in place of a result where one does not run.

    The blocks of all `fleets` take about `budget_s`; loading, checking and warming up come on top. Where calls are so
    long that all of it takes more than `OVERTIME` times that, there are fewer fleets, but at least three. With a
    `truth` file (`truth.write`) an entry whose outputs are wrong is not timed.
    """
    ring = _Ring(entries, sizes, truth)
    began = time.monotonic()
    for number in range(fleets):
        if number >= FEWEST and time.monotonic() - began > OVERTIME * budget_s:
            break
        ring.fleet(budget_s / fleets)
    return {name: ring.result(name) for name in entries}


class _Ring:
    """The entries of a contest; one that fails drops out with its reason."""

    def __init__(self, entries: Mapping[str, Entry], sizes: Mapping[str, int], truth: Path | None) -> None:
        self._entries, self._sizes, self._truth = entries, sizes, truth
        self._workers: dict[str, Worker] = {}
        self._fleets: dict[str, list[tuple[float, ...]]] = {name: [] for name in entries}
        self._bytes: dict[str, int] = {}
        self._failed: dict[str, str] = {}
        self._random = random.Random(0)

    def fleet(self, budget_s: float) -> None:
        """One round of new processes, which end with it."""
        with ExitStack() as stack:
            logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="isorun-")))
            self._workers = {
                name: stack.enter_context(Worker(logs / f"{i}.log", entry.threads))
                for i, (name, entry) in enumerate(self._entries.items())
                if name not in self._failed
            }
            for name in self._workers:
                self._load(name)
            blocks = self._blocks(budget_s)
            for name in self._ready():
                memory = self._ask(name, "facts").get("memory", {})
                self._bytes[name] = memory.get("arena", 0) + memory.get("activations", 0)
                self._fleets[name].append(tuple(blocks[name]))

    def result(self, name: str) -> Result | str:
        """What came of an entry."""
        if name in self._failed:
            return self._failed[name]
        return Result(tuple(self._fleets[name]), self._bytes[name])

    def _ready(self) -> list[str]:
        return [name for name in self._workers if name not in self._failed]

    def _load(self, name: str) -> None:
        """Put a model and its inputs in place, check the outputs, and warm up."""
        entry = self._entries[name]
        session = None if entry.session is None else dict(entry.session)
        where = {"folder": str(entry.folder.resolve()), "runtime": entry.runtime, "threads": entry.threads}
        if self._ask(name, "load", **where, session=session):
            truth = str(self._truth) if self._truth else None
            answer = self._ask(name, "stage", sizes=dict(self._sizes), truth=truth)
            reason = wrong([OutputError(**error) for error in answer.get("errors", ())])
            if reason is not None:
                self._failed[name] = reason

    def _blocks(self, budget_s: float) -> dict[str, list[float]]:
        """Alternate blocks in shuffled order; the median of each in seconds."""
        blocks: dict[str, list[float]] = {name: [] for name in self._workers}
        for _ in range(ROUNDS):
            ready = self._ready()
            for name in self._random.sample(ready, len(ready)):
                answer = self._ask(name, "block", seconds=budget_s / (ROUNDS * len(ready)))
                if answer:
                    blocks[name].append(median(answer["ns"]) / 1e9)
        return blocks

    def _ask(self, name: str, op: str, **arguments: Any) -> dict[str, Any]:
        try:
            return self._workers[name].ask(op, TIMEOUT_S, **arguments)
        except WorkerError as error:
            self._failed[name] = str(error)
            return {}
