"""A worker without a process: a runtime's behaviour is a small object, so that the loop is tested in milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from isorun.bench.beside import SUFFIX
from isorun.bench.client import WorkerDied, WorkerError
from isorun.bench.records import Run
from isorun.bench.runfolder import read_run
from isorun.bench.runner import Runner

RIGHT = {"name": "logits", "rms": 1e-7, "max_abs": 4e-7, "scale": 1.0, "ruler_rms": 1e-7}


def finish(runner: Runner) -> Run:
    """Run to the end, and read back what it left, of which every line is sound."""
    for _ in runner.run():
        pass
    run = read_run(runner.folder)
    assert run.problems == ()
    return run


@dataclass
class Behaviour:
    """How a runtime answers: what it raises on an operation at a length, its outputs, and how long a call takes."""

    call_ns: Callable[[int], float] = lambda length: 1000.0 * length
    error: dict[str, Any] = field(default_factory=lambda: dict(RIGHT))
    failures: dict[tuple[str, int | None], Exception] = field(default_factory=dict)


class FakeWorker:
    """Has the face of `Worker`. `behaviours` maps runtime names, `exports` maps export folders to what they raise.

    A second process of a runtime is called "twin" in `asked`, and behaves as the runtime does unless `behaviours` has
    that name; one of another environment is called RUNTIME@base.
    """

    behaviours: dict[str, Behaviour] = {}  # noqa: RUF012  (set by each test)
    exports: dict[str, Exception] = {}  # noqa: RUF012
    open_workers: list[FakeWorker] = []  # noqa: RUF012
    asked: list[tuple[str, str]] = []  # noqa: RUF012
    positions: int | None = None

    def __init__(self, log: Path, threads: int, python: str | None = None) -> None:
        self.runtime: str = ""
        self.python = python
        self.twin = log.stem.endswith("-twin")
        self.length: int | None = None
        self.rng = np.random.default_rng(0)
        self.open_workers.append(self)

    def ask(self, op: str, timeout_s: float = 0.0, **arguments: Any) -> dict[str, Any]:
        if "runtime" in arguments:
            self.runtime = arguments["runtime"] + (SUFFIX if self.python else "")
        if op == "stage":
            self.length = arguments["sizes"].get("source")
        self.asked.append((op, "twin" if self.twin else self.runtime))
        if op == "costs":
            totals = {"flops": 10**6, "bytes": 10**5, "weights": 4096, "cache": 16, "activations": 64}
            return {"costs": [{**totals, "flops": 10**6 * s["batch"] * s["source"]} for s in arguments["shapes"]]}
        if op in ("export", "truth", "same_function"):
            return self._prepare(op, arguments)
        behaviour = self.behaviours.get(self.runtime, Behaviour())
        behaviour = self.behaviours.get("twin", behaviour) if self.twin else behaviour
        failure = behaviour.failures.get((op, self.length))
        if failure is not None:
            if isinstance(failure, WorkerDied):
                self.close()
            raise failure
        return {
            "load": {"prepare_s": 0.5},
            "stage": {"errors": [behaviour.error] if arguments.get("truth") else []},
            "block": {
                "ns": [int(behaviour.call_ns(self.length or 1) * noise) for noise in self.rng.normal(1, 0.01, 4)]
            },
            "facts": {
                "placement": {"provider": "fake", "nodes": {}, "precision": "fp32", "threads": 1},
                "peak_bytes": 1,
                "memory": {"weights": 5000},
            },
        }[op]

    @property
    def alive(self) -> bool:
        return self in self.open_workers

    def close(self) -> None:
        if self in self.open_workers:
            self.open_workers.remove(self)

    def _prepare(self, op: str, arguments: dict[str, Any]) -> dict[str, Any]:
        name = Path(arguments["folder"]).name
        failure = self.exports.get(f"{op} {name}")
        if op == "truth":
            failure = failure or self.exports.get(f"{op} {name} {arguments['sizes']['source']}")
        if failure is not None:
            if isinstance(failure, WorkerDied):
                self.close()
            raise failure
        return {
            "check": "same function",
            "distance": 1e-15,
            "limit": 1e-9,
            "output": "logits",
            "probe": {"batch": 3},
            "seconds": 1.0,
            "positions": self.positions,
        }


def refused(reason: str) -> WorkerError:
    return WorkerError(reason)


def died(reason: str) -> WorkerDied:
    return WorkerDied(reason)
