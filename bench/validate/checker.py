"""The ONNX checker in a process of its own: on a hostile file it may crash, run for hours, or take all memory."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from ...export.machine import free_bytes
from ..client import Worker, WorkerDied

TIMEOUT_S = 30.0
SHARE = 0.5  # of the free memory


class Checker:
    """Asks the checker about files, one after the other; use as a context manager, which ends the process."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._folder = Path(tempfile.mkdtemp(prefix="isorun-"))
        self._worker: Worker | None = None

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def refusal(self, file: Path) -> str | None:
        """What the checker, with strict shape inference, says against a file; None where it accepts it.

        Raises:
            WorkerError: it did not answer in time, or its process died; the next file gets a new one.
        """
        if self._worker is None:
            self._worker = Worker(self._folder / "checker.log", threads=1)
        memory = int(free_bytes() * SHARE)
        try:
            answer = self._worker.ask("check", self._timeout_s, file=str(file.resolve()), memory_bytes=memory)
        except WorkerDied:
            self._stop()
            raise
        says: str | None = answer["refusal"]
        return says

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None
