"""The runner's end of a worker process: ask, wait with a limit, and know when it died."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

START_S = 120.0
# -P: the user's folder must not shadow a package that the worker imports
COMMAND = ("-P", "-m", "isorun.bench.worker")
OURS = ("PYTHONPATH", "PYTHONHOME")  # where our interpreter finds packages, which are not those of another one
# Threads of OpenMP wait awake for more work, GNU's for some 7 ms and Intel's for 200, which the process that is timed
# next would lack: 1 ms is longer than between two operators or two calls that follow each other.
BRIEF = {"GOMP_SPINCOUNT": "50000", "KMP_BLOCKTIME": "1"}


class WorkerError(Exception):
    """A request that failed in the worker; the message is the reason for a row. The worker lives on."""


class WorkerUnsuited(WorkerError):
    """The runtime runs nothing of this kind; see `runtimes.base.Unsuited`."""


class WorkerDied(WorkerError):
    """The worker crashed, was killed, or did not answer in time; it is gone."""


class WorkerHung(WorkerDied):
    """It did not answer in time."""


class Worker:
    """One process that runs `isorun.bench.worker`; it ends when this object is closed, or when the runner dies.

    `python` is the interpreter of another environment, whose packages it then has.
    """

    def __init__(self, log: Path, threads: int, python: str | None = None) -> None:
        self._log = log
        kept = {key: value for key, value in os.environ.items() if python is None or key not in OURS}
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                (python or sys.executable, *COMMAND),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env={**kept, **BRIEF, "OMP_NUM_THREADS": str(threads)},
                start_new_session=True,  # Ctrl-C is for the runner, which then closes its workers
                text=True,
            )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, op: str, timeout_s: float = START_S, **arguments: Any) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises:
            WorkerError: the worker says that the request failed.
            WorkerUnsuited: it says that its runtime is not for such a graph.
            WorkerDied: it is gone.
        """
        stdin = self._process.stdin
        assert stdin is not None  # PIPE was asked for
        try:
            stdin.write(json.dumps({"op": op, **arguments}) + "\n")
            stdin.flush()
        except (BrokenPipeError, ValueError):
            raise WorkerDied(self._obituary()) from None
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            self.close()
            raise WorkerHung(f"no answer to {op!r} within {timeout_s:g} s") from None
        if not line:
            raise WorkerDied(self._obituary())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise (WorkerUnsuited if answer.get("unsuited") else WorkerError)(answer["error"])
        return answer

    @property
    def alive(self) -> bool:
        """Whether the process can still be asked."""
        return self._process.poll() is None

    def close(self) -> None:
        """Kill the process and whatever it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None  # PIPE was asked for
        with contextlib.suppress(ValueError):  # closed while reading: the end, as well
            for line in stdout:
                self._answers.put(line)
        self._answers.put("")

    def _obituary(self) -> str:
        """How the process ended, with the last line that it wrote."""
        status = self._process.wait()
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"the worker process ended ({how})" + (f": {lines[-1][:200]}" if lines else "")
