"""The runtimes of one validation, each in a process of its own with a limit on memory and time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ...export.machine import free_bytes
from ...export.source import Source
from ...models.signature import Array
from ..client import Worker, WorkerDied, WorkerError
from .memory import Memory
from .walk import Step

TIMEOUT_S = 30.0
TIMEOUT_S_A_GIB = 60.0  # more of it for each GiB of weights
LARGE = 2**28  # bytes of weights that only one process at a time should hold
TRACE_S = 60.0  # torch.export, on top
SHARE = 0.8  # of the free memory, for one process: what asks for more is refused there, and nothing else suffers


class Unloadable(WorkerError):
    """A runtime does not load the model at all, whatever the inputs."""


class Evaluators:
    """Evaluate one model file on any runtime; use as a context manager, which ends the processes."""

    def __init__(
        self,
        file: Path,
        dtype: str,
        source: Source,
        phase: str,
        *,
        session: Mapping[str, str] | None = None,
        weight_bytes: int = 0,
    ) -> None:
        named = {"file": str(file.resolve()), "dtype": dtype, "source": asdict(source), "phase": phase}
        self._opening = {**named, "session": dict(session or {})}
        self._timeout_s = TIMEOUT_S + TIMEOUT_S_A_GIB * weight_bytes / 2**30
        self._workers: dict[tuple[str, bool], Worker] = {}
        self._failed: dict[tuple[str, bool], WorkerError] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="isorun-"))
        self._memory = Memory(self._folder) if weight_bytes > LARGE else None
        self.placements: dict[tuple[str, bool], Mapping[str, Any]] = {}

    def __enter__(self) -> Evaluators:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def ahead(self, runtimes: Iterable[str], feeds: Iterable[Mapping[str, Array]]) -> None:
        """With a large model, evaluate all of this runtime by runtime: one process at a time then holds the weights."""
        if self._memory is None:
            return
        given = list(feeds)
        for runtime in runtimes:
            for one in given:
                with suppress(WorkerError):  # it is raised again where the outputs are asked for
                    self.run(runtime, one)

    def run(
        self, runtime: str, feeds: Mapping[str, Array], *, optimise: bool = True, again: bool = False
    ) -> dict[str, Array]:
        """The outputs by name; `again` never answers from memory.

        Raises:
            Unloadable: the runtime refuses the model.
            WorkerDied: its process crashed or hung; it is not tried again.
            WorkerError: it refuses these inputs.
        """
        key = runtime, optimise
        if self._memory is None:
            return self._run(key, feeds)
        if again or not self._memory.knows(key, feeds):
            try:
                self._memory.keep(key, feeds, self._run(key, feeds))
            except WorkerError as error:
                self._memory.keep(key, feeds, error)
        return self._memory.recall(key, feeds)

    def _run(self, key: tuple[str, bool], feeds: Mapping[str, Array]) -> dict[str, Array]:
        try:
            return self._evaluate(self._open(key), key, feeds)
        except WorkerDied as error:
            if key in self._workers:
                self._workers.pop(key).close()
            self._failed[key] = error
            raise

    def _close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()

    def walk(self, feeds: Mapping[str, Array], opset: int) -> list[Step]:
        """Graph and source side by side, value by value, in the process that holds the source.

        Raises:
            WorkerError: the source cannot be traced, or its process died.
        """
        given = self._folder / "inputs.npz"
        np.savez(given, *feeds.values(), allow_pickle=False)
        asked = {name: self._opening[name] for name in ("file", "source", "phase")}
        if self._memory is not None:
            self._close()
        worker = self._workers.get(("source64", True)) or self._start(("walk", True))
        given_names = {"inputs": str(given), "names": list(feeds), "memory_bytes": _memory_bytes()}
        answer = worker.ask("walk", self._timeout_s + TRACE_S, **asked, opset=opset, **given_names)
        return [_step(**fields) for fields in answer["steps"]]

    def _open(self, key: tuple[str, bool]) -> Worker:
        if key in self._failed:
            raise self._failed[key]
        if key not in self._workers:
            if self._memory is not None:
                self._close()
            runtime, optimise = key
            worker = self._start(key)
            try:
                setting = {"runtime": runtime, "optimise": optimise, "memory_bytes": _memory_bytes()}
                worker.ask("open", self._timeout_s, **self._opening, **setting)
            except WorkerDied:
                raise
            except WorkerError as error:
                self._failed[key] = Unloadable(str(error))
                raise self._failed[key] from None
        return self._workers[key]

    def _start(self, key: tuple[str, bool]) -> Worker:
        self._workers[key] = Worker(self._folder / f"{key[0]}.log", threads=1)
        return self._workers[key]

    def _evaluate(self, worker: Worker, key: tuple[str, bool], feeds: Mapping[str, Array]) -> dict[str, Array]:
        given, found = self._folder / "inputs.npz", self._folder / "outputs.npz"
        np.savez(given, *feeds.values(), allow_pickle=False)
        files = {"inputs": str(given), "outputs": str(found)}
        answer = worker.ask("evaluate", self._timeout_s, names=list(feeds), **files)
        self.placements[key] = answer["placement"]
        with np.load(found, allow_pickle=False) as archive:
            return {name: archive[f"arr_{i}"] for i, name in enumerate(answer["names"])}


def _memory_bytes() -> int:
    return int(free_bytes() * SHARE)


def _step(**fields: Any) -> Step:
    """A step as it comes from another process, where tuples are lists."""
    plain: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in fields.items()}
    return Step(**plain)
