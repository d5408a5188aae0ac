"""The runtimes of one validation, each in a process of its own with a limit on memory and time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from ...export.source import Source
from ...models.signature import Array
from ..client import Worker, WorkerDied, WorkerError

TIMEOUT_S = 30.0
TIMEOUT_S_A_GIB = 60.0  # more of it for each GiB of weights
SHARE = 0.8  # of the free memory, for one process: what asks for more is refused there, and nothing else suffers


class Unloadable(WorkerError):
    """A runtime does not load the model at all, whatever the inputs."""


class Evaluators:
    """Evaluate one model file on any runtime; use as a context manager, which ends the processes."""

    def __init__(self, file: Path, dtype: str, source: Source, phase: str, weight_bytes: int = 0) -> None:
        self._opening = {"file": str(file.resolve()), "dtype": dtype, "source": asdict(source), "phase": phase}
        self._timeout_s = TIMEOUT_S + TIMEOUT_S_A_GIB * weight_bytes / 2**30
        self._workers: dict[tuple[str, bool], Worker] = {}
        self._failed: dict[tuple[str, bool], WorkerError] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="isorun-"))
        self.placements: dict[tuple[str, bool], Mapping[str, Any]] = {}

    def __enter__(self) -> Evaluators:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, runtime: str, feeds: Mapping[str, Array], *, optimise: bool = True) -> dict[str, Array]:
        """The outputs by name.

        Raises:
            Unloadable: the runtime refuses the model.
            WorkerDied: its process crashed or hung; it is not tried again.
            WorkerError: it refuses these inputs.
        """
        key = runtime, optimise
        try:
            return self._evaluate(self._open(key), key, feeds)
        except WorkerDied as error:
            if key in self._workers:
                self._workers.pop(key).close()
            self._failed[key] = error
            raise

    def _open(self, key: tuple[str, bool]) -> Worker:
        if key in self._failed:
            raise self._failed[key]
        if key not in self._workers:
            runtime, optimise = key
            worker = Worker(self._folder / f"{runtime}.log", threads=1)
            self._workers[key] = worker
            memory = int(psutil.virtual_memory().available * SHARE)
            try:
                setting = {"runtime": runtime, "optimise": optimise, "memory_bytes": memory}
                worker.ask("open", self._timeout_s, **self._opening, **setting)
            except WorkerDied:
                raise
            except WorkerError as error:
                self._failed[key] = Unloadable(str(error))
                raise self._failed[key] from None
        return self._workers[key]

    def _evaluate(self, worker: Worker, key: tuple[str, bool], feeds: Mapping[str, Array]) -> dict[str, Array]:
        given, found = self._folder / "inputs.npz", self._folder / "outputs.npz"
        np.savez(given, *feeds.values(), allow_pickle=False)
        files = {"inputs": str(given), "outputs": str(found)}
        answer = worker.ask("evaluate", self._timeout_s, names=list(feeds), **files)
        self.placements[key] = answer["placement"]
        with np.load(found, allow_pickle=False) as archive:
            return {name: archive[f"arr_{i}"] for i, name in enumerate(answer["names"])}
